#include "cli/pictures/simulation/simulation_page.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "cli/pictures/account/account.hpp"
#include "cli/pictures/chart.hpp"
#include "cli/pictures/simulation/simulated_traces.hpp"
#include "cli/pictures/simulation/simulation_view.hpp"
#include "cli/pictures/tracks_figure.hpp"

namespace ringside::cli {

using planning::Simulation;

namespace {

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

// The plan on another number of data-parallel ranks, with the same batch; none if the batch or the
// machine does not allow it.
std::optional<planning::Plan> on_data_ranks(const Simulation& s, std::int64_t count) {
  planning::Plan plan = s.plan;
  const bool sharded = plan.mesh.index(parallel::Axis::fsdp) > 0;
  const auto axis = sharded ? parallel::Axis::fsdp : parallel::Axis::dp;
  const std::int64_t others = plan.mesh.data_ranks() / plan.mesh.size(axis);
  plan.mesh = plan.mesh.with(axis, static_cast<int>(count));
  const std::int64_t sequences = s.plan.batch() / plan.micro_batch;
  const std::int64_t data_ranks = others * count;
  plan.micro_batches = sequences / data_ranks;
  constexpr std::int64_t most_micro_batches = 4096;  // a page should not take seconds
  const bool possible = sequences % data_ranks == 0 && plan.micro_batches >= 1 &&
                        plan.micro_batches <= most_micro_batches &&
                        plan.mesh.ranks() <= s.machine.levels.back().group &&
                        (plan.schedule != "interleaved" ||
                         plan.micro_batches % plan.mesh.size(parallel::Axis::pp) == 0);
  return possible ? std::optional(plan) : std::nullopt;
}

Figure ranks_curve(const Simulation& s) {
  Series step{"step", Series::line, {}}, ideal{"ideal", Series::dashed, {}},
      exposed{"exposed communication", Series::line, {}};
  for (std::int64_t count = 1; count <= s.machine.levels.back().group; count *= 2) {
    const auto plan = on_data_ranks(s, count);
    if (!plan) continue;
    const Simulation each = simulate(s.model, *plan, s.machine);
    const auto ranks = static_cast<double>(plan->mesh.ranks());
    double waits = 0;
    for (const auto& axis : each.exposed) waits += axis.seconds;
    step.points.emplace_back(ranks, each.step * 1e3);
    const auto& [fewest, longest] = step.points.front();
    ideal.points.emplace_back(ranks, longest * fewest / ranks);
    exposed.points.emplace_back(ranks, waits * 1e3);
  }
  const Chart chart{
      "Time of a step over ranks", {"ranks", true}, {"ms per step", true}, {step, ideal, exposed}};
  return {chart.title, step.points.size() > 1 ? draw(chart) : "",
          "The same model and batch on 1, 2, 4, ... times as many data-parallel ranks. The "
          "dashed line is what twice as many ranks in half the time would be. Where the step "
          "leaves it, the bubble grows, because each pipeline has fewer micro-batches, or "
          "communication is no longer hidden.",
          table_of(chart)};
}

}  // namespace

Report simulation_page(const Simulation& s) {
  Report report{"A step of " + s.model.name + " on " + s.plan.mesh.text(), {}, {}};
  report.facts = {{"plan", plan_text(s.plan, true)},
                  {"machine", s.machine.name + ": " + sources_text(s.machine)},
                  {"step", planning::text_with_unit(s.step, planning::Unit::seconds)},
                  {"bubble", fmt::format("{:.2f} % of the pipeline's time", 100 * s.bubble)},
                  {"MFU", fmt::format("{:.1f} %", 100 * s.utilization)}};
  report.figures = {lanes_of(s)};
  for (Figure& figure : simulation_tables(s))
    if (!figure.table.rows.empty()) report.figures.push_back(std::move(figure));
  report.figures.push_back(ranks_curve(s));
  return report;
}

}  // namespace ringside::cli
