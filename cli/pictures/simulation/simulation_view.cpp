#include "cli/pictures/simulation/simulation_view.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "cli/pictures/account/account.hpp"
#include "cli/pictures/numbers.hpp"
#include "parallel/pipeline/proof/formulas.hpp"
#include "planning/formulas/pipeline.hpp"

namespace ringside::cli {

using planning::Simulation;

namespace {

std::string seconds_text(double seconds) {
  return planning::text_with_unit(seconds, planning::Unit::seconds);
}

std::string count_text(double value) {
  return planning::text_with_unit(std::round(value), planning::Unit::number);
}

// "NVLink between 8, InfiniBand between 16384 devices".
std::string levels_text(const planning::Machine& machine) {
  std::vector<std::string> levels;
  for (const auto& level : machine.levels)
    levels.push_back(fmt::format("{} between {}", level.name, level.group));
  return fmt::format("{} devices", fmt::join(levels, "; "));
}

std::string head_text(const Simulation& s) {
  std::string text = fact("model", s.model.name) + fact("plan", plan_text(s.plan, true)) +
                     fact("machine", s.machine.name + ": " + levels_text(s.machine));
  text +=
      fact("ranks",
           s.replicas_simulated == s.replicas_in_all
               ? fmt::format("all {} simulated", s.plan.mesh.ranks())
               : fmt::format("{}; {} simulated, the others do the same", s.plan.mesh.ranks(),
                             s.replicas_simulated == 1
                                 ? "one data-parallel replica"
                                 : fmt::format("{} data-parallel replicas", s.replicas_simulated)));
  if (!s.machine.estimates.empty()) text += fact("estimate", s.machine.estimates);
  return text;
}

std::string step_text(const Simulation& s) {
  std::string text =
      fmt::format("\nStep: {}, {} tokens per second, MFU {:.1f} %\n", seconds_text(s.step),
                  count_text(s.tokens_per_second()), 100 * s.utilization);
  if (s.undisturbed > 0)
    text += fmt::format("  without slow ranks: {}; they cost {:.1f} %\n",
                        seconds_text(s.undisturbed), 100 * (s.step / s.undisturbed - 1));
  if (s.lowered.ranks() > 1)
    text += fmt::format(
        "  bubble: a rank is idle {:.2f} % of the pipeline's time ({:.2f} % by the\n"
        "  formula, for equal stages and free messages)\n",
        100 * s.bubble, 100 * bubble_share(s.plan).value());
  return text + fmt::format("  optimizer, and what ZeRO gathers after it: {}\n",
                            seconds_text(s.optimizer));
}

Show milliseconds() {
  return [](double seconds) { return table_number(seconds * 1e3); };
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

std::string text_of(const SimulationTable& table) {
  if (table.table.rows.empty()) return "";
  return fmt::format("\n{}\n{}", wrapped(table.title + ": " + table.caption, 0, 0),
                     table.table.text());
}

}  // namespace

SimulationTable ranks_table(const Simulation& s) {
  SimulationTable ranks{
      "Ranks of each pipeline stage",
      "computing, with the communication in its midst; idle until the last "
      "computation anywhere; then reducing gradients.",
      {{number("stage", ""), number("computing (ms)", "computing_seconds", milliseconds()),
        number("idle (ms)", "idle_seconds", milliseconds()),
        number("reducing (ms)", "reducing_seconds", milliseconds())}}};
  for (int rank = 0; rank < s.lowered.ranks(); ++rank)
    ranks.table.rows.push_back(times_of_rank(s, rank));
  return ranks;
}

SimulationTable exposed_table(const Simulation& s) {
  SimulationTable exposed{"Exposed communication",
                          "how much shorter a step would be if the communication along an axis "
                          "took no time.",
                          {{words("axis", "axis"), number("ms", "seconds", milliseconds()),
                            number("% of step", "", fixed(1, 100))}}};
  for (const auto& each : s.exposed)
    exposed.table.rows.push_back({each.axis, each.seconds, each.seconds / s.step});
  return exposed;
}

SimulationTable loads_table(const Simulation& s) {
  const Show gigabytes = [](double bytes) { return table_number(bytes / 1e9); };
  SimulationTable loads{
      "Load of the links",
      "what the rank that sends most sends in a step, how long its link is busy "
      "with these bytes at its rate, and the share of the step.",
      {{words("level", "level"), words("axis", "axis"), number("GB", "sent_bytes", gigabytes),
        number("busy (ms)", "busy_seconds", milliseconds()),
        number("% of step", "busy_share", fixed(1, 100))}}};
  for (const auto& load : s.loads)
    loads.table.rows.push_back(
        {load.level, load.axis, load.bytes, load.seconds, load.seconds / s.step});
  return loads;
}

std::string simulation_text(const Simulation& s) {
  return head_text(s) + step_text(s) + text_of(ranks_table(s)) + text_of(exposed_table(s)) +
         text_of(loads_table(s));
}

Json simulation_json(const Simulation& s) {
  Json json = {{"model", s.model.name},
               {"machine", s.machine.name},
               {"mesh", s.plan.mesh.text()},
               {"devices", s.plan.mesh.ranks()},
               {"schedule", s.plan.schedule},
               {"micro_batches", s.plan.micro_batches},
               {"micro_batch", s.plan.micro_batch},
               {"sequence", s.plan.sequence},
               {"replicas", s.replicas_in_all},
               {"replicas_simulated", s.replicas_simulated},
               {"step_seconds", s.step},
               {"undisturbed_step_seconds", s.undisturbed > 0 ? s.undisturbed : s.step},
               {"tokens_per_second", s.tokens_per_second()},
               {"mfu", s.utilization},
               {"bubble_share", s.bubble},
               {"optimizer_seconds", s.optimizer}};
  json["pipeline_ranks"] = ranks_table(s).table.json();
  json["exposed"] = exposed_table(s).table.json();
  json["links"] = loads_table(s).table.json();
  return json;
}

}  // namespace ringside::cli
