// The replicas of a plan: durations of their stages on the network, and which are alike.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "planning/simulation/network.hpp"
#include "planning/simulation/simulation.hpp"

namespace ringside::planning {
namespace {

using collectives::Collective;

// Computes the durations of one replica after the other.
class Replicas {
 public:
  Replicas(const Plan& plan, const PlanLoad& load, const std::vector<int>& rank_of,
           const Machine& machine, std::optional<Axis> silent)
      : load_(load),
        rank_of_(rank_of),
        network_(machine),
        mesh_(plan.mesh),
        pipeline_ranks_(plan.mesh.size(Axis::pp)),
        overlap_(machine.overlap),
        silent_(silent) {}

  Replica make(std::int64_t data) {
    Replica replica;
    for (std::int64_t rank = 0; rank < pipeline_ranks_; ++rank)
      replica.units.push_back(mesh_.unit_group(rank, data));
    for (std::size_t stage = 0; stage < load_.stages.size(); ++stage)
      replica.stages.push_back(times_of(stage, data));
    replica.reduce_group = mesh_.state_group(load_.state_axis, 0, data).first;
    const std::int64_t first = mesh_.first_of_experts(data);
    replica.shard_group =
        load_.has_shards ? mesh_.state_group(load_.state_axis, 0, first).first : first;
    return replica;
  }

 private:
  double seconds_of(const Calls& calls, Axis axis, const RankGroup& group) {
    if (calls.count == 0 || silent_ == axis) return 0;
    return calls.count * network_.collective_seconds(calls.collective, group, calls.bytes);
  }

  // What `attention` seconds of computing do not hide of a ring's messages; or all of collectives.
  double context_seconds(const std::vector<Calls>& calls, double attention,
                         const RankGroup& group) {
    if (silent_ == Axis::cp) return 0;
    double waited = 0, passed_on = 0;
    for (const Calls& each : calls)
      if (each.collective == Collective::point_to_point)
        passed_on += each.count *
                     network_.message_seconds(group.first, group.first + group.stride, each.bytes);
      else
        waited += each.count * network_.collective_seconds(each.collective, group, each.bytes);
    return waited + passed_on - std::min(overlap_ * passed_on, attention);
  }

  UnitCalls units_of(const Calls& calls, const RankGroup& group) {
    if (calls.count == 0) return {};
    return {calls.count, seconds_of(calls, load_.state_axis, group) / calls.count, calls.hidden};
  }

  double message_seconds(int from, int to, std::int64_t data) const {
    if (from == to || silent_ == Axis::pp) return 0;
    return network_.message_seconds(mesh_.rank(from, data), mesh_.rank(to, data),
                                    load_.message_bytes);
  }

  StageTimes times_of(std::size_t stage, std::int64_t data) {
    const StageLoad& load = load_.stages[stage];
    const int rank = rank_of_[stage];
    const RankGroup tensor = mesh_.along(Axis::tp, rank, data),
                    shards = mesh_.state_group(load_.state_axis, rank, data);
    StageTimes times{.forward = load.forward, .input = load.input, .weight = load.weight};
    for (const Calls& calls : load.tensor_forward)
      times.tensor_forward += seconds_of(calls, Axis::tp, tensor);
    for (const Calls& calls : load.tensor_backward)
      times.tensor_backward += seconds_of(calls, Axis::tp, tensor);
    const RankGroup context = mesh_.along(Axis::cp, rank, data);
    times.tensor_forward += context_seconds(load.context_forward, load.attention_forward, context);
    times.tensor_backward +=
        context_seconds(load.context_backward, load.attention_backward, context);
    const RankGroup experts = mesh_.along(Axis::ep, rank, data);
    for (const Calls& calls : load.expert_forward)
      times.tensor_forward += seconds_of(calls, Axis::ep, experts);
    for (const Calls& calls : load.expert_backward)
      times.tensor_backward += seconds_of(calls, Axis::ep, experts);
    times.gather_forward = units_of(load.gather_forward, shards);
    times.gather_backward = units_of(load.gather_backward, shards);
    times.scatter = units_of(load.scatter, shards);
    times.blocks = load.blocks;
    if (stage + 1 < load_.stages.size())
      times.message_on = message_seconds(rank, rank_of_[stage + 1], data);
    if (stage > 0) times.message_back = message_seconds(rank, rank_of_[stage - 1], data);
    times.buckets = silent_ == load_.state_axis ? 0 : static_cast<int>(load.reduce.count);
    if (times.buckets > 0)
      times.bucket = seconds_of(load.reduce, load_.state_axis, shards) / times.buckets;
    times.reduces_each = load.reduces_each;
    return times;
  }

  const PlanLoad& load_;
  const std::vector<int>& rank_of_;
  Network network_;
  const MeshRanks mesh_;
  const std::int64_t pipeline_ranks_;
  const double overlap_;
  const std::optional<Axis> silent_;
};

// The factors of a replica's ranks, empty if all are 1.
std::vector<double> slowness_of(const Replica& replica, const Stragglers& stragglers) {
  std::vector<double> factors;
  if (stragglers.slow.empty()) return factors;
  bool any = false;
  for (const RankGroup& unit : replica.units)
    for (std::int64_t i = 0; i < unit.count; ++i) {
      factors.push_back(stragglers.factor(unit.first + i * unit.stride, 0));
      any = any || factors.back() != 1;
    }
  return any ? factors : std::vector<double>{};
}

}  // namespace

std::vector<Replica> replicas_of(const Plan& plan, const PlanLoad& load,
                                 const std::vector<int>& rank_of, const Machine& machine,
                                 const SimulationOptions& options, std::optional<Axis> silent) {
  Replicas replicas(plan, load, rank_of, machine, silent);
  const std::int64_t count = plan.mesh.data_ranks();
  // Alike are replicas with the same durations and the same slow ranks. With two axes that divide
  // the batch it also matters with whom a replica communicates, so then only all or none are
  // folded.
  std::vector<Replica> all, folded;
  std::map<std::pair<std::vector<StageTimes>, std::vector<double>>, std::size_t> known;
  const bool may_fold = options.fold && options.stragglers.jitter == 0;
  for (std::int64_t data = 0; data < count; ++data) {
    Replica replica = replicas.make(data);
    if (may_fold) {
      const auto [at, is_new] = known.try_emplace(
          {replica.stages, slowness_of(replica, options.stragglers)}, folded.size());
      if (is_new)
        folded.push_back(replica);
      else
        ++folded[at->second].count;
    }
    all.push_back(std::move(replica));
  }
  const bool one_axis =
      std::ranges::count_if(std::array{Axis::dp, Axis::fsdp, Axis::ep},
                            [&](Axis axis) { return plan.mesh.size(axis) > 1; }) <= 1;
  return may_fold && (one_axis || folded.size() == 1) ? folded : all;
}

}  // namespace ringside::planning
