#include "cli/planning/simulation_page.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/planning/simulated_traces.hpp"
#include "cli/planning/simulation_view.hpp"
#include "cli/report/numbers.hpp"
#include "cli/report/report_figures.hpp"
#include "cli/views/account.hpp"

namespace ringside::cli {

using planning::Simulation;

namespace {

std::string ms(double seconds) {
  return table_number(seconds * 1e3);
}

// The first, the middle and the last of many ranks: a page with more lanes is not read.
constexpr std::size_t most_lanes = 8;

Figure lanes_of(const Simulation& s) {
  std::vector<RankTrace> traces = simulated_traces(s);
  const std::size_t all = traces.size();
  if (all > most_lanes) {
    std::vector<RankTrace> some;
    for (std::size_t i = 0; i < most_lanes; ++i)
      some.push_back(std::move(traces[i * (all - 1) / (most_lanes - 1)]));
    traces = std::move(some);
  }
  Figure figure = tracks_figure("What the ranks do in a step", traces, {0, s.step}, 0);
  figure.caption = fmt::format(
                       "{} of {} pipeline ranks of one replica. Communication within a computation "
                       "is drawn at its "
                       "end. ",
                       traces.size(), all) +
                   figure.caption;
  return figure;
}

Figure exposed_figure(const Simulation& s) {
  Figure figure{"Exposed communication",
                "",
                "How much shorter a step would be if the communication along an axis took no time.",
                {{"axis", "ms", "share of the step (%)"}, {}}};
  for (const auto& each : s.exposed)
    figure.table.rows.push_back(
        {each.axis, ms(each.seconds), fmt::format("{:.1f}", 100 * each.seconds / s.step)});
  return figure;
}

Figure links_figure(const Simulation& s) {
  Figure figure{"Load of the links",
                "",
                "What the rank that sends most sends in a step, and how long its link is busy.",
                {{"level", "axis", "GB", "busy (ms)", "share of the step (%)"}, {}}};
  for (const auto& load : s.loads)
    figure.table.rows.push_back({load.level, load.axis, table_number(load.bytes / 1e9),
                                 ms(load.seconds),
                                 fmt::format("{:.1f}", 100 * load.seconds / s.step)});
  return figure;
}

Figure ranks_figure(const Simulation& s) {
  Figure figure{"Ranks of each pipeline stage",
                "",
                "Computing, with the communication in its midst; idle until the last computation "
                "anywhere; then reducing gradients.",
                {{"stage", "computing (ms)", "idle (ms)", "reducing (ms)"}, {}}};
  for (int rank = 0; rank < s.lowered.ranks(); ++rank) {
    const PipelineRankTimes times = times_of_rank(s, rank);
    figure.table.rows.push_back(
        {fmt::to_string(rank), ms(times.computing), ms(times.idle), ms(times.reducing)});
  }
  return figure;
}

}  // namespace

Report simulation_page(const Simulation& s) {
  Report report{"A step of " + s.model.name + " on " + to_text(s.plan.mesh), {}, {}};
  report.facts = {{"plan", plan_text(s.plan, true)},
                  {"machine", s.machine.name + ": " + s.machine.source},
                  {"step", planning::text_with_unit(s.step, planning::Unit::seconds)},
                  {"bubble", fmt::format("{:.2f} % of the pipeline's time", 100 * s.bubble)},
                  {"MFU", fmt::format("{:.1f} %", 100 * s.utilization)}};
  report.figures = {lanes_of(s), ranks_figure(s)};
  if (!s.exposed.empty()) report.figures.push_back(exposed_figure(s));
  if (!s.loads.empty()) report.figures.push_back(links_figure(s));
  return report;
}

}  // namespace ringside::cli
