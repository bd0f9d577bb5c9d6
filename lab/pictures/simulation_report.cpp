#include "lab/pictures/simulation_report.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/pictures/tracks_figure.hpp"
#include "lab/pictures/account.hpp"
#include "lab/pictures/simulated_traces.hpp"
#include "parallel/pipeline/proof/formulas.hpp"
#include "planning/formulas/pipeline.hpp"

namespace ringside::cli {

using planning::Simulation;

namespace {

// "NVLink between 8, InfiniBand between 16384 devices".
std::string levels_text(const planning::Machine& machine) {
  std::vector<std::string> levels;
  for (const auto& level : machine.levels)
    levels.push_back(fmt::format("{} between {}", level.name, level.group));
  return fmt::format("{} devices", fmt::join(levels, "; "));
}

std::string ranks_text(const Simulation& s) {
  if (s.replicas_simulated == s.replicas_in_all)
    return fmt::format("all {} simulated", s.plan.mesh.ranks());
  const std::string replicas = s.replicas_simulated == 1
                                   ? "one data-parallel replica"
                                   : fmt::format("{} data-parallel replicas", s.replicas_simulated);
  return fmt::format("{}; {} simulated, the others do the same", s.plan.mesh.ranks(), replicas);
}

// What the ranks of one pipeline rank do in a step, in seconds; the mean over the replicas.
std::vector<Cell> times_of_rank(const Simulation& s, int rank) {
  double computing = 0, count = 0;
  for (std::size_t i = 0; i < s.replicas.size(); ++i) {
    const auto weight = static_cast<double>(s.replicas[i].count);
    computing += weight * s.timeline.replicas[i].busy[rank];
    count += weight;
  }
  computing /= count;
  return {rank, computing, std::max(0.0, s.timeline.computed - computing),
          s.timeline.reduced - s.timeline.computed};
}

Table ranks_table(const Simulation& s) {
  Table table{{number("stage", ""), number("computing (ms)", "computing_seconds", scaled(1e3)),
               number("idle (ms)", "idle_seconds", scaled(1e3)),
               number("reducing (ms)", "reducing_seconds", scaled(1e3))}};
  for (int rank = 0; rank < s.lowered.ranks(); ++rank) table.rows.push_back(times_of_rank(s, rank));
  return table;
}

Table exposed_table(const Simulation& s) {
  Table table{{words("axis", "axis"), number("ms", "seconds", scaled(1e3)),
               number("% of step", "", fixed(1, 100))}};
  for (const auto& each : s.exposed)
    table.rows.push_back({each.axis, each.seconds, each.seconds / s.step});
  return table;
}

Table loads_table(const Simulation& s) {
  Table table{{words("level", "level"), words("axis", "axis"),
               number("GB", "sent_bytes", scaled(1e-9)),
               number("busy (ms)", "busy_seconds", scaled(1e3)),
               number("% of step", "busy_share", fixed(1, 100))}};
  for (const auto& load : s.loads)
    table.rows.push_back({load.level, load.axis, load.bytes, load.seconds, load.seconds / s.step});
  return table;
}

}  // namespace

Report simulation_report(const Simulation& s) {
  Report report{"A step of " + s.model.name + " on " + s.plan.mesh.text(), {}, {}};
  report.facts = {{"model", s.model.name},
                  {"plan", plan_text(s.plan, true)},
                  {"machine", s.machine.name + ": " + levels_text(s.machine)},
                  {"ranks", ranks_text(s)}};
  if (!s.machine.estimates.empty()) report.facts.emplace_back("estimate", s.machine.estimates);
  report.facts.emplace_back(
      "step", fmt::format("{}, {} tokens per second, MFU {:.1f} %", seconds_text(s.step),
                          count_text(s.tokens_per_second()), 100 * s.utilization));
  if (s.undisturbed > 0)
    report.facts.emplace_back(
        "slow", fmt::format("without slow ranks: {}; they cost {:.1f} %",
                            seconds_text(s.undisturbed), 100 * (s.step / s.undisturbed - 1)));
  if (s.lowered.ranks() > 1)
    report.facts.emplace_back(
        "bubble", fmt::format("a rank is idle {:.2f} % of the pipeline's time ({:.2f} % by the "
                              "formula, for equal stages and free messages)",
                              100 * s.bubble, 100 * bubble_share(s.plan).value()));
  report.facts.emplace_back("update", fmt::format("optimizer, and what ZeRO gathers after it: {}",
                                                  seconds_text(s.optimizer)));
  report.figures = {
      {"Ranks of each pipeline stage", "",
       "Computing, with the communication in its midst; idle until the last computation "
       "anywhere; then reducing gradients.",
       ranks_table(s)},
      {"Exposed communication", "",
       "How much shorter a step would be if the communication along an axis took no time.",
       exposed_table(s)},
      {"Load of the links", "",
       "What the rank that sends most sends in a step, how long its link is busy with these "
       "bytes at its rate, and the share of the step.",
       loads_table(s)}};
  std::erase_if(report.figures, [](const Figure& figure) { return figure.table.rows.empty(); });
  return report;
}

Figure simulation_lanes(const Simulation& s) {
  // The first, the middle and the last of many ranks: a page with more lanes is not read.
  constexpr std::size_t most = 8;
  const std::vector<RankTrace> all = simulated_traces(s);
  std::vector<RankTrace> shown;
  for (std::size_t i = 0; i < std::min(most, all.size()); ++i)
    shown.push_back(all[all.size() <= most ? i : i * (all.size() - 1) / (most - 1)]);
  Figure figure = tracks_figure("What the ranks do in a step", shown, {0, s.step}, 0);
  figure.caption = fmt::format(
      "{} of {} pipeline ranks of one replica. Communication within a "
      "computation is drawn at its end. {}",
      shown.size(), all.size(), figure.caption);
  return figure;
}

Json simulation_json(const Simulation& s) {
  Json json = plan_json(s.model, s.machine, s.plan);
  json.update({{"replicas", s.replicas_in_all},
               {"replicas_simulated", s.replicas_simulated},
               {"step_seconds", s.step},
               {"undisturbed_step_seconds", s.undisturbed > 0 ? s.undisturbed : s.step},
               {"tokens_per_second", s.tokens_per_second()},
               {"mfu", s.utilization},
               {"bubble_share", s.bubble},
               {"optimizer_seconds", s.optimizer},
               {"pipeline_ranks", ranks_table(s).json()},
               {"exposed", exposed_table(s).json()},
               {"links", loads_table(s).json()}});
  return json;
}

}  // namespace ringside::cli
