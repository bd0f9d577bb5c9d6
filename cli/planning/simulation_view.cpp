#include "cli/planning/simulation_view.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "cli/report/numbers.hpp"
#include "cli/views/account.hpp"
#include "pipeline_parallel/proof/formulas.hpp"
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
               ? fmt::format("all {} simulated", s.plan.mesh.devices())
               : fmt::format("{}; {} simulated, the others do the same", s.plan.mesh.devices(),
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

std::string ranks_text(const Simulation& s) {
  std::string text = fmt::format(
      "\nRanks of each pipeline stage, ms: computing with the communication in its\n"
      "midst; idle until the last computation anywhere; then reducing gradients\n"
      "  {:>8}{:>12}{:>12}{:>12}\n",
      "stage", "computing", "idle", "reducing");
  for (int rank = 0; rank < s.lowered.ranks(); ++rank) {
    const PipelineRankTimes times = times_of_rank(s, rank);
    text += fmt::format("  {:>8}{:>12}{:>12}{:>12}\n", rank, table_number(times.computing * 1e3),
                        table_number(times.idle * 1e3), table_number(times.reducing * 1e3));
  }
  return text;
}

std::string exposed_text(const Simulation& s) {
  if (s.exposed.empty()) return "";
  std::string text = fmt::format(
      "\nExposed communication: a step would be so much shorter if it took no time\n"
      "  {:8}{:>12}{:>9}\n",
      "axis", "ms", "share");
  for (const auto& each : s.exposed)
    text += fmt::format("  {:8}{:>12}{:>7.1f} %\n", each.axis, table_number(each.seconds * 1e3),
                        100 * each.seconds / s.step);
  return text;
}

std::string loads_text(const Simulation& s) {
  if (s.loads.empty()) return "";
  std::string text = fmt::format(
      "\nLinks: of the rank that sends most, in a step; busy is the time for these\n"
      "bytes at the link's rate, and its share of the step\n"
      "  {:24}{:6}{:>10}{:>11}{:>9}\n",
      "level", "axis", "GB", "busy, ms", "share");
  for (const auto& load : s.loads)
    text += fmt::format("  {:24}{:6}{:>10}{:>11}{:>7.1f} %\n", load.level, load.axis,
                        table_number(load.bytes / 1e9), table_number(load.seconds * 1e3),
                        100 * load.seconds / s.step);
  return text;
}

}  // namespace

PipelineRankTimes times_of_rank(const Simulation& s, int rank) {
  PipelineRankTimes mean;
  double count = 0;
  for (std::size_t i = 0; i < s.replicas.size(); ++i) {
    const auto weight = static_cast<double>(s.replicas[i].count);
    mean.computing += weight * s.timeline.replicas[i].busy[rank];
    count += weight;
  }
  mean.computing /= count;
  mean.idle = std::max(0.0, s.timeline.computed - mean.computing);
  mean.reducing = s.timeline.reduced - s.timeline.computed;
  return mean;
}

std::string simulation_text(const Simulation& s) {
  return head_text(s) + step_text(s) + ranks_text(s) + exposed_text(s) + loads_text(s);
}

Json simulation_json(const Simulation& s) {
  Json json = {{"model", s.model.name},
               {"machine", s.machine.name},
               {"mesh", to_text(s.plan.mesh)},
               {"devices", s.plan.mesh.devices()},
               {"schedule", name_of(s.plan.schedule)},
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
  for (int rank = 0; rank < s.lowered.ranks(); ++rank) {
    const PipelineRankTimes times = times_of_rank(s, rank);
    json["pipeline_ranks"].push_back({{"computing_seconds", times.computing},
                                      {"idle_seconds", times.idle},
                                      {"reducing_seconds", times.reducing}});
  }
  json["exposed"] = Json::array();
  for (const auto& each : s.exposed)
    json["exposed"].push_back({{"axis", each.axis}, {"seconds", each.seconds}});
  json["links"] = Json::array();
  for (const auto& load : s.loads)
    json["links"].push_back({{"level", load.level},
                             {"axis", load.axis},
                             {"sent_bytes", load.bytes},
                             {"busy_seconds", load.seconds},
                             {"busy_share", load.seconds / s.step}});
  return json;
}

}  // namespace ringside::cli
