#include "planning/simulation/longest_path.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "parallel/pipeline/proof/walk.hpp"
#include "planning/simulation/durations.hpp"

namespace ringside::planning {
namespace {

using pipeline_parallel::Action;
using pipeline_parallel::Clocks;
using pipeline_parallel::Kind;
using pipeline_parallel::Place;
using pipeline_parallel::Schedule;
using pipeline_parallel::Span;

class Walk {
 public:
  explicit Walk(const PathInput& input)
      : schedule_(input.lowered),
        replicas_(input.replicas),
        stragglers_(input.stragglers),
        overlap_(input.overlap),
        places_(schedule_) {
    const auto ranks = static_cast<std::size_t>(schedule_.ranks());
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      clocks_.emplace_back(schedule_, places_);
      network_.emplace_back(ranks, 0);
      timeline_.replicas.emplace_back().busy.assign(ranks, 0);
      auto& exposed = timeline_.exposed.emplace_back();
      for (const auto& actions : schedule_.actions) exposed.emplace_back(actions.size());
      reducing_[replicas_[i].reduce_group].push_back(i);
      sharding_[replicas_[i].shard_group].push_back(i);
    }
  }

  Timeline run() {
    for (const Place& place : in_order(schedule_, places_)) {
      const Action& action = schedule_.actions[place.rank][place.index];
      if (is_send(action.kind)) {
        const bool on = action.kind == Kind::send_activation;
        for (std::size_t i = 0; i < replicas_.size(); ++i) {
          const StageTimes& stage = replicas_[i].stages[action.stage];
          clocks_[i].send(place, on ? stage.message_on : stage.message_back);
        }
      } else if (is_receive(action.kind)) {
        for (Clocks& clocks : clocks_) clocks.receive(place);
      } else if (action.kind == Kind::reduce_gradients) {
        for (const auto& [group, members] : reducing_) reduce(members, place, action.stage);
      } else {
        compute_all(place, action);
      }
    }
    for (std::size_t i = 0; i < replicas_.size(); ++i)
      for (int rank = 0; rank < schedule_.ranks(); ++rank)
        timeline_.reduced = std::max({timeline_.reduced, clocks_[i].now[rank], network_[i][rank]});
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      timeline_.replicas[i].spans = std::move(clocks_[i].spans);
      timeline_.replicas[i].step = timeline_.computed;
    }
    return std::move(timeline_);
  }

 private:
  // Ranks that shard each other's parameters or experts end together.
  void compute_all(const Place& place, const Action& action) {
    for (const auto& [group, members] : sharding_) {
      double end = 0;
      for (const std::size_t i : members) end = std::max(end, compute(i, place, action));
      for (const std::size_t i : members)
        clocks_[i].now[place.rank] = clocks_[i].span(place).end = end;
    }
    const StageTimes& stage = replicas_.front().stages[action.stage];
    const bool is_last_half = action.kind == Kind::backward || action.kind == Kind::backward_weight;
    const bool reduced_behind = action.micro_batch + 1 == schedule_.micro_batches;
    if (!stage.reduces_each || !is_last_half || reduced_behind) return;
    for (const auto& [group, members] : reducing_) {
      reduce_behind(members, place, action.stage);
      // It delays computations that follow, so it is no bubble.
      for (const std::size_t i : members)
        timeline_.replicas[i].busy[place.rank] +=
            not_hidden(replicas_[members.front()].stages[action.stage]);
    }
  }

  double not_hidden(const StageTimes& stage) const {
    return (1 - overlap_) * stage.bucket * stage.buckets;
  }

  double compute(std::size_t i, const Place& place, const Action& action) {
    const auto [computing, exposed] =
        durations_of(replicas_[i].stages[action.stage], action.kind, overlap_);
    const double seconds = computing * slowest_of(stragglers_, replicas_[i].units[place.rank],
                                                  static_cast<std::uint64_t>(place.index)) +
                           exposed;
    clocks_[i].compute(place, seconds);
    timeline_.exposed[i][place.rank][place.index] = exposed;
    timeline_.replicas[i].busy[place.rank] += seconds;
    timeline_.computed = std::max(timeline_.computed, clocks_[i].now[place.rank]);
    return clocks_[i].now[place.rank];
  }

  // The reduction after the last backward of a stage, and in the lowered schedule an action of its
  // own.
  void reduce(const std::vector<std::size_t>& members, const Place& place, int stage) {
    const Span took = reduce_behind(members, {place.rank, last_backward(place, stage)}, stage);
    for (const std::size_t i : members) clocks_[i].span(place) = took;
  }

  int last_backward(const Place& reduction, int stage) const {
    const std::vector<Action>& actions = schedule_.actions[reduction.rank];
    int index = reduction.index - 1;
    while (!is_computation(actions[index].kind) || actions[index].stage != stage) --index;
    return index;
  }

  // The gradients of a stage are ready one bucket after the other, at even distances, while
  // `backward` runs. A bucket is reduced when all members have it and the bucket before is done:
  //
  //     computing   |      backward       |
  //     network          |bucket 1||bucket 2||bucket 3|
  //
  // What cannot overlap delays the rank.
  Span reduce_behind(const std::vector<std::size_t>& members, const Place& backward, int stage) {
    const StageTimes& times = replicas_[members.front()].stages[stage];
    Span took{clocks_[members.front()].now[backward.rank], 0};
    double free = 0;
    for (int bucket = 0; bucket < times.buckets; ++bucket) {
      double ready = free;
      for (const std::size_t i : members) {
        const auto [start, end] = clocks_[i].span(backward);
        const double done = static_cast<double>(bucket + 1) / times.buckets;
        ready = std::max({ready, start + done * (end - start), network_[i][backward.rank]});
      }
      if (bucket == 0) took.start = ready;
      free = ready + times.bucket;
    }
    took.end = std::max(took.start, free);
    for (const std::size_t i : members) {
      if (times.buckets > 0) network_[i][backward.rank] = free;
      clocks_[i].now[backward.rank] += not_hidden(times);
    }
    return took;
  }

  const Schedule& schedule_;
  const std::vector<Replica>& replicas_;
  const Stragglers& stragglers_;
  const double overlap_;
  const pipeline_parallel::Places places_;
  std::map<std::int64_t, std::vector<std::size_t>> reducing_, sharding_;  // members of each group
  std::vector<Clocks> clocks_;                                            // of each replica
  std::vector<std::vector<double>> network_;  // [replica][rank] when its last bucket is reduced
  Timeline timeline_;
};

}  // namespace

double Timeline::bubble(const std::vector<Replica>& all) const {
  double busy = 0, whole = 0;
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const double seconds : replicas[i].busy) {
      busy += seconds * static_cast<double>(all[i].count);
      whole += computed * static_cast<double>(all[i].count);
    }
  return whole > 0 ? 1 - busy / whole : 0;
}

Timeline longest_path(const PathInput& input) {
  require(!input.replicas.empty(), "a simulation needs at least one replica");
  return Walk(input).run();
}

}  // namespace ringside::planning
