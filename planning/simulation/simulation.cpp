#include "planning/simulation/simulation.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/lower.hpp"
#include "planning/formulas/communication.hpp"
#include "planning/formulas/work.hpp"
#include "planning/simulation/congestion/congestion.hpp"
#include "planning/simulation/durations.hpp"
#include "planning/simulation/network.hpp"

namespace ringside::planning {
namespace {

pipeline_parallel::Schedule schedule_of(const Plan& plan) {
  const int ranks = static_cast<int>(plan.mesh.size(Axis::pp)),
            micro_batches = static_cast<int>(plan.micro_batches);
  return lower(
      pipeline_parallel::make_schedule(plan.schedule, ranks, micro_batches, stages_per_rank(plan)));
}

void require_ranks(const Plan& plan, const Stragglers& stragglers) {
  for (const auto& [rank, factor] : stragglers.slow)
    require(rank >= 0 && rank < plan.mesh.ranks(),
            "rank {} cannot be slow: the mesh {} has the ranks 0 to {}", rank, plan.mesh.text(),
            plan.mesh.ranks() - 1);
}

// The ranks of a unit are neighbours. Those that shard the state stand at even distances, or at two
// with the pipeline between cp and the state's axis: then a ring passes the ranks of cp first, and
// what counts is how many there are in a server or pod. Flows need each rank's place.
void require_order(const MeshShape& mesh, Axis state, bool congestion) {
  if (mesh.size(Axis::cp) == 1) return;
  const std::int64_t stride = mesh.stride(Axis::cp), inside = mesh.size(Axis::cp) * stride;
  const bool is_beside_tp =
                 mesh.size(Axis::tp) == 1 || stride == mesh.stride(Axis::tp) * mesh.size(Axis::tp),
             is_outside = state == Axis::cp || mesh.stride(state) >= inside,
             is_beside = state == Axis::cp || mesh.stride(state) == inside;
  require(is_beside_tp && is_outside,
          "the mesh {} is not simulated: with cp the axes are expected in the order pp, dp, fsdp, "
          "cp, tp, or with pp before cp",
          mesh.text());
  require(!congestion || is_beside,
          "the mesh {} is not simulated with --congestion: {} is expected before cp", mesh.text(),
          name_of(state));
}

// Seconds of the update on the slowest rank. It begins when the norm of all gradients is known, so
// when the last rank has reduced its own.
double update_seconds(const PathInput& input, const PlanLoad& load, const Plan& plan,
                      Network& network, std::optional<Axis> silent) {
  const MeshRanks mesh(plan.mesh);
  std::vector<double> optimizer(static_cast<std::size_t>(plan.mesh.size(Axis::pp))),
      gather(optimizer.size());
  for (std::size_t stage = 0; stage < load.stages.size(); ++stage) {
    const int rank = input.lowered.rank_of[stage];
    const auto seconds = [&](const Calls& calls, Axis axis) {
      if (calls.count == 0 || silent == axis) return 0.0;
      return calls.count *
             network.collective_seconds(
                 calls.collective, mesh.group(axis, axis == load.state_axis, rank, 0), calls.bytes);
    };
    optimizer[rank] += load.stages[stage].optimizer;
    gather[rank] += seconds(load.stages[stage].gather_updated, load.state_axis) +
                    seconds(load.stages[stage].average_copies, Axis::dp) +
                    seconds(load.stages[stage].average_shared, Axis::ep);
  }
  double longest = 0;
  for (const Replica& replica : input.replicas)
    for (std::size_t rank = 0; rank < replica.units.size(); ++rank) {
      const double factor =
          slowest_of(input.stragglers, replica.units[rank], input.lowered.actions[rank].size());
      longest = std::max(longest, factor * optimizer[rank] + gather[rank]);
    }
  return longest;
}

// What a rank of a stage sends, by level and axis.
class Loads {
 public:
  Loads(const Plan& plan, const PlanLoad& load, const pipeline_parallel::Schedule& schedule,
        const Network& network)
      : plan_(plan), load_(load), schedule_(schedule), network_(network), mesh_(plan.mesh) {}

  std::vector<LinkLoad> run() {
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      sent_.clear();
      const auto m = static_cast<double>(plan_.micro_batches);
      for (const int stage : stages_of(schedule_, rank)) {
        const StageLoad& each = load_.stages[stage];
        load_.for_calls(each, m, [&](Axis axis, const Calls& calls, double times) {
          const RankGroup group = mesh_.group(axis, axis == load_.state_axis, rank, 0);
          if (calls.count > 0 && group.count > 1)
            sends(axis, group, times * calls.sent(group.count), network_.level_of_ring(group));
        });
        if (const RankGroup tp = mesh_.along(Axis::tp, rank, 0); each.tensor_sums > 0)
          sends(Axis::tp, tp, each.tensor_sums, network_.level_of_ring(tp));
        message(stage, stage + 1, m);
        message(stage, stage - 1, m);
      }
      keep_largest();
    }
    return loads_;
  }

 private:
  void message(int stage, int other, double times) {
    if (other < 0 || other >= schedule_.stages()) return;
    const int from = schedule_.rank_of[stage], to = schedule_.rank_of[other];
    if (from == to) return;
    const std::int64_t a = mesh_.rank(std::min(from, to), 0), b = mesh_.rank(std::max(from, to), 0);
    const RankGroup both{a, 2, b - a};
    sends(Axis::pp, both, times * load_.message_bytes, network_.level_along(both));
  }

  void sends(Axis axis, const RankGroup& group, double bytes, const Level& level) {
    auto& load = sent_
                     .try_emplace({network_.level_of(group), axis},
                                  LinkLoad{level.name, std::string(name_of(axis))})
                     .first->second;
    load.bytes += bytes, load.seconds += bytes / level.rate();
  }

  void keep_largest() {
    for (const auto& [where, load] : sent_) {
      auto found = std::ranges::find_if(loads_, [&](const LinkLoad& known) {
        return known.level == load.level && known.axis == load.axis;
      });
      if (found == loads_.end()) found = loads_.insert(found, load);
      found->bytes = std::max(found->bytes, load.bytes);
      found->seconds = std::max(found->seconds, load.seconds);
    }
  }

  const Plan& plan_;
  const PlanLoad& load_;
  const pipeline_parallel::Schedule& schedule_;
  const Network& network_;
  const MeshRanks mesh_;
  std::map<std::pair<std::size_t, Axis>, LinkLoad> sent_;  // of one pipeline rank
  std::vector<LinkLoad> loads_;
};

// What a rank sends, for the engine whose links are shared: rings along dp and cp.
Transfers transfers_of(const Plan& plan, const PlanLoad& load) {
  Transfers transfers{load.message_bytes, {}, plan.mesh.size(Axis::cp)};
  for (const StageLoad& stage : load.stages)
    transfers.bucket_bytes.push_back(
        stage.reduce.count > 0 ? stage.reduce.sent(plan.state_ranks()) / stage.reduce.count : 0);
  return transfers;
}

// One run of the engine.
struct Run {
  std::vector<Replica> replicas;
  Timeline timeline;
  double optimizer = 0;
  double step() const { return timeline.reduced + optimizer; }
};

Run run(const Plan& plan, const PlanLoad& load, const Machine& machine,
        const SimulationOptions& options, const pipeline_parallel::Schedule& schedule,
        std::optional<Axis> silent = {}) {
  PathInput input{schedule, replicas_of(plan, load, schedule.rank_of, machine, options, silent),
                  machine.overlap, options.stragglers};
  Network network(machine);
  Run result{{},
             options.congestion ? congested_path(input, transfers_of(plan, load), machine)
                                : longest_path(input),
             update_seconds(input, load, plan, network, silent)};
  result.replicas = std::move(input.replicas);
  return result;
}

}  // namespace

Simulation simulate(const Model& whole_model, const Plan& plan, const Machine& machine,
                    const SimulationOptions& wanted) {
  const Model model = on_mesh(whole_model, plan.mesh);
  SimulationOptions options = wanted;
  options.fold = wanted.fold && !wanted.congestion;  // it matters which replicas share a link
  validate(plan, model);
  require(model.has_blocks(), "only the state of {} is known, so its step cannot be simulated",
          model.name);
  require_order(plan.mesh, plan.state_axis(), options.congestion);
  machine.level_for(plan.mesh.ranks());
  require_ranks(plan, options.stragglers);
  Simulation result;
  result.model = model, result.plan = plan, result.machine = machine;
  result.lowered = schedule_of(plan);
  result.load = load_of(model, plan, machine);
  if (!options.measured.empty()) take_measured(options.measured, result.load);
  const PlanLoad& load = result.load;
  Run whole = run(plan, load, machine, options, result.lowered);
  result.step = whole.step();
  result.bubble = whole.timeline.bubble(whole.replicas);
  result.optimizer = whole.optimizer;
  for (const Axis axis : plan.mesh.axes())
    if (plan.mesh.size(axis) > 1)
      result.exposed.push_back(
          {std::string(name_of(axis)),
           result.step - run(plan, load, machine, options, result.lowered, axis).step()});
  if (options.stragglers.any()) {
    SimulationOptions undisturbed = options;
    undisturbed.stragglers = {};
    result.undisturbed = run(plan, load, machine, undisturbed, result.lowered).step();
  }
  const Network network(machine);
  result.loads = Loads(plan, load, result.lowered, network).run();
  result.replicas_simulated = static_cast<std::int64_t>(whole.replicas.size());
  result.replicas_in_all = plan.mesh.data_ranks();
  result.replicas = std::move(whole.replicas), result.timeline = std::move(whole.timeline);
  result.tokens = static_cast<double>(plan.batch()) * static_cast<double>(plan.sequence);
  result.utilization = model_flops_utilization(model_flops(model, plan), result.step,
                                               static_cast<double>(plan.mesh.ranks()), machine)
                           .value();
  return result;
}

}  // namespace ringside::planning
