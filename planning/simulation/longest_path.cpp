#include "planning/simulation/longest_path.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "pipeline_parallel/lower.hpp"
#include "pipeline_parallel/proof/places.hpp"
#include "planning/simulation/durations.hpp"

namespace ringside::planning {
namespace {

using pipeline_parallel::Action;
using pipeline_parallel::Kind;
using pipeline_parallel::Schedule;
using pipeline_parallel::Span;

// An action by its place in the schedule.
struct Place {
  int rank = 0, index = 0;
};

// All actions, each after the one before it on its rank and, for a receive, after its send.
std::vector<Place> in_order(const Schedule& schedule, const pipeline_parallel::Places& places) {
  std::vector<Place> order;
  std::vector<int> next(static_cast<std::size_t>(schedule.ranks()), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      const std::vector<Action>& actions = schedule.actions[rank];
      for (; next[rank] < static_cast<int>(actions.size()); ++next[rank]) {
        const Action& action = actions[next[rank]];
        if (is_receive(action.kind)) {
          const Action send = matching(action);
          if (next[schedule.rank_of[send.stage]] <= places.of(send)) break;
        }
        order.push_back({rank, next[rank]});
        moved = true;
      }
    }
  }
  for (int rank = 0; rank < schedule.ranks(); ++rank)
    require(next[rank] == static_cast<int>(schedule.actions[rank].size()),
            "rank {} of the pipeline waits forever, so the schedule has no end: `ringside prove "
            "pipeline` says why",
            rank);
  return order;
}

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
      State& state = states_.emplace_back();
      state.now.assign(ranks, 0), state.network.assign(ranks, 0);
      auto& timing = timeline_.replicas.emplace_back();
      timing.busy.assign(ranks, 0);
      auto& exposed = timeline_.exposed.emplace_back();
      for (const auto& actions : schedule_.actions) {
        timing.spans.emplace_back(actions.size());
        exposed.emplace_back(actions.size());
      }
      reducing_[replicas_[i].reduce_group].push_back(i);
      sharding_[replicas_[i].shard_group].push_back(i);
    }
  }

  Timeline run() {
    for (const Place& place : in_order(schedule_, places_)) {
      const Action& action = schedule_.actions[place.rank][place.index];
      if (is_send(action.kind)) {
        for (std::size_t i = 0; i < replicas_.size(); ++i) send(i, place, action);
      } else if (is_receive(action.kind)) {
        for (std::size_t i = 0; i < replicas_.size(); ++i) receive(i, place, action);
      } else if (action.kind == Kind::reduce_gradients) {
        for (const auto& [group, members] : reducing_) reduce(members, place, action.stage);
      } else {
        compute_all(place, action);
      }
    }
    for (std::size_t i = 0; i < replicas_.size(); ++i)
      for (int rank = 0; rank < schedule_.ranks(); ++rank)
        timeline_.reduced =
            std::max({timeline_.reduced, states_[i].now[rank], states_[i].network[rank]});
    for (auto& timing : timeline_.replicas) timing.step = timeline_.computed;
    return std::move(timeline_);
  }

 private:
  // Clocks of one replica, in seconds.
  struct State {
    std::vector<double> now;      // [rank] when its last action ended
    std::vector<double> network;  // [rank] when its last bucket has been reduced
    std::map<pipeline_parallel::Lane, double> lane_free;
  };

  Span& span(std::size_t replica, const Place& place) {
    return timeline_.replicas[replica].spans[place.rank][place.index];
  }

  // The span of a send is that of its message. The rank goes on at once.
  void send(std::size_t replica, const Place& place, const Action& action) {
    const StageTimes& stage = replicas_[replica].stages[action.stage];
    double& free = states_[replica].lane_free[lane_of(schedule_, action)];
    const double departure = std::max(states_[replica].now[place.rank], free);
    free =
        departure + (action.kind == Kind::send_activation ? stage.message_on : stage.message_back);
    span(replica, place) = {departure, free};
  }

  void receive(std::size_t replica, const Place& place, const Action& action) {
    const Action sent = matching(action);
    double& now = states_[replica].now[place.rank];
    const double start = now;
    now = std::max(now, span(replica, {schedule_.rank_of[sent.stage], places_.of(sent)}).end);
    span(replica, place) = {start, now};
  }

  // Ranks that shard each other's parameters end together.
  void compute_all(const Place& place, const Action& action) {
    for (const auto& [group, members] : sharding_) {
      double end = 0;
      for (const std::size_t i : members) end = std::max(end, compute(i, place, action));
      const StageTimes& stage = replicas_[members.front()].stages[action.stage];
      if (stage.gather_forward.count == 0) continue;
      for (const std::size_t i : members) states_[i].now[place.rank] = span(i, place).end = end;
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
    double& now = states_[i].now[place.rank];
    span(i, place) = {now, now + seconds};
    timeline_.exposed[i][place.rank][place.index] = exposed;
    now += seconds;
    timeline_.replicas[i].busy[place.rank] += seconds;
    timeline_.computed = std::max(timeline_.computed, now);
    return now;
  }

  // The reduction after the last backward of a stage, and in the lowered schedule an action of its
  // own.
  void reduce(const std::vector<std::size_t>& members, const Place& place, int stage) {
    const Span took = reduce_behind(members, {place.rank, last_backward(place, stage)}, stage);
    for (const std::size_t i : members) span(i, place) = took;
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
    Span took{states_[members.front()].now[backward.rank], 0};
    double free = 0;
    for (int bucket = 0; bucket < times.buckets; ++bucket) {
      double ready = free;
      for (const std::size_t i : members) {
        const auto [start, end] = span(i, backward);
        const double done = static_cast<double>(bucket + 1) / times.buckets;
        ready = std::max({ready, start + done * (end - start), states_[i].network[backward.rank]});
      }
      if (bucket == 0) took.start = ready;
      free = ready + times.bucket;
    }
    took.end = std::max(took.start, free);
    for (const std::size_t i : members) {
      if (times.buckets > 0) states_[i].network[backward.rank] = free;
      states_[i].now[backward.rank] += not_hidden(times);
    }
    return took;
  }

  const Schedule& schedule_;
  const std::vector<Replica>& replicas_;
  const Stragglers& stragglers_;
  const double overlap_;
  const pipeline_parallel::Places places_;
  std::map<std::int64_t, std::vector<std::size_t>> reducing_, sharding_;  // members of each group
  std::vector<State> states_;
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
