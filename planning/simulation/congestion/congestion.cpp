#include "planning/simulation/congestion/congestion.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "parallel/pipeline/lower.hpp"
#include "parallel/pipeline/proof/places.hpp"
#include "planning/simulation/congestion/fluid_network.hpp"
#include "planning/simulation/durations.hpp"

namespace ringside::planning {
namespace {

using pipeline_parallel::Action;
using pipeline_parallel::Kind;
using pipeline_parallel::Schedule;

// A message, or one bucket of one reduce group.
struct Transfer {
  FlowPath path;
  double bytes = 0, latency = 0;
  bool is_message = true;
  std::size_t replica = 0;  // of a message: its sender; of a bucket: the first member
  int rank = 0, index = 0;  // the send, or the reduction
  double start = 0;
};

struct Event {
  enum What { unit_is_free, bucket_is_ready, flow_begins } what = unit_is_free;
  double time = 0;
  std::size_t replica = 0;  // or the transfer
  int rank = 0, index = 0;  // of a bucket: the backward that makes it ready
  int bucket = 0;
  // Events of one moment in the order of their ranks, so that runs can be repeated.
  bool operator<(const Event& other) const {
    return std::tie(other.time, other.what, other.replica, other.rank, other.bucket) <
           std::tie(time, what, replica, rank, bucket);
  }
};

class Walk {
 public:
  Walk(const PathInput& input, const Transfers& sizes, const Machine& machine)
      : input_(input),
        schedule_(input.lowered),
        sizes_(sizes),
        network_(machine),
        places_(schedule_),
        units_(input.replicas.size(), std::vector<Unit>(schedule_.actions.size())) {
    for (std::size_t i = 0; i < input.replicas.size(); ++i) {
      members_[input.replicas[i].reduce_group].push_back(i);
      auto& timing = timeline_.replicas.emplace_back();
      auto& exposed = timeline_.exposed.emplace_back();
      timing.busy.assign(schedule_.actions.size(), 0);
      for (const auto& actions : schedule_.actions) {
        timing.spans.emplace_back(actions.size(), pipeline_parallel::Span{0, -1});
        exposed.emplace_back(actions.size());
      }
    }
  }

  Timeline run() {
    for (std::size_t i = 0; i < units_.size(); ++i)
      for (int rank = 0; rank < schedule_.ranks(); ++rank) go_on(i, rank);
    while (!events_.empty() || !network_.idle()) {
      const double event =
          events_.empty() ? std::numeric_limits<double>::infinity() : events_.top().time;
      now_ = std::min(event, network_.next_end());
      for (const std::size_t id : network_.advance(now_)) end(id);
      while (!events_.empty() && events_.top().time <= now_) {
        const Event next = events_.top();
        events_.pop();
        happen(next);
      }
    }
    for (std::size_t i = 0; i < units_.size(); ++i) {
      for (int rank = 0; rank < schedule_.ranks(); ++rank)
        require(units_[i][rank].next == static_cast<int>(schedule_.actions[rank].size()),
                "rank {} of the pipeline waits forever, so the schedule has no end: `ringside "
                "prove pipeline` says why",
                rank);
      timeline_.replicas[i].step = timeline_.computed;
    }
    timeline_.reduced = std::max(timeline_.reduced, timeline_.computed);
    return std::move(timeline_);
  }

 private:
  struct Unit {
    int next = 0;  // the action that it takes next
    bool computes = false;
  };
  // Transfers that go one after the other: those of a lane, and the buckets of a rank's group.
  struct Line {
    std::deque<std::size_t> waiting;
    bool busy = false;
  };

  pipeline_parallel::Span& span(std::size_t replica, int rank, int index) {
    return timeline_.replicas[replica].spans[rank][index];
  }

  // Takes actions of a unit until it computes, waits for a message that it needs, or is done.
  void go_on(std::size_t i, int rank) {
    Unit& unit = units_[i][rank];
    while (!unit.computes && unit.next < static_cast<int>(schedule_.actions[rank].size())) {
      const Action& action = schedule_.actions[rank][unit.next];
      if (is_receive(action.kind)) {
        span(i, rank, unit.next) = {now_, now_};
      } else if (is_send(action.kind)) {
        send(i, rank, unit.next, action);
      } else if (is_computation(action.kind)) {
        if (!receive(i, rank, action)) return;
        compute(i, rank, action);
      } else if (input_.replicas[i].stages[action.stage].buckets == 0) {
        span(i, rank, unit.next) = {now_, now_};
      }
      ++unit.next;
    }
  }

  // Whether what a computation needs of another rank has arrived. The span of its receive ends
  // then.
  bool receive(std::size_t i, int rank, const Action& computation) {
    const auto needed = receive_before(schedule_, computation);
    if (!needed) return true;
    const Action sent = matching(*needed);
    const double arrived = span(i, schedule_.rank_of[sent.stage], places_.of(sent)).end;
    if (arrived < 0) return false;
    pipeline_parallel::Span& received = span(i, rank, places_.of(*needed));
    received.end = std::max(received.start, arrived);
    return true;
  }

  void compute(std::size_t i, int rank, const Action& action) {
    Unit& unit = units_[i][rank];
    const StageTimes& stage = input_.replicas[i].stages[action.stage];
    const auto [computing, exposed] = durations_of(stage, action.kind, input_.overlap);
    double seconds = computing * slowest_of(input_.stragglers, input_.replicas[i].units[rank],
                                            static_cast<std::uint64_t>(unit.next)) +
                     exposed;
    span(i, rank, unit.next) = {now_, now_ + seconds};
    timeline_.exposed[i][rank][unit.next] = exposed;
    timeline_.replicas[i].busy[rank] += seconds;
    timeline_.computed = std::max(timeline_.computed, now_ + seconds);
    const bool ends_backward =
        action.kind == Kind::backward || action.kind == Kind::backward_weight;
    const bool reduces = ends_backward && stage.buckets > 0 &&
                         (stage.reduces_each || is_last_backward(rank, unit.next));
    for (int bucket = 0; reduces && bucket < stage.buckets; ++bucket)
      events_.push({Event::bucket_is_ready, now_ + seconds * (bucket + 1) / stage.buckets, i, rank,
                    unit.next, bucket});
    // What cannot overlap delays the rank.
    if (reduces) seconds += (1 - input_.overlap) * stage.bucket * stage.buckets;
    unit.computes = true;
    events_.push({Event::unit_is_free, now_ + seconds, i, rank, 0, 0});
  }

  bool is_last_backward(int rank, int index) const {
    const auto& actions = schedule_.actions[rank];
    for (int i = index + 1; i < static_cast<int>(actions.size()); ++i)
      if (actions[i].stage == actions[index].stage && is_computation(actions[i].kind)) return false;
    return true;
  }

  void send(std::size_t i, int rank, int index, const Action& action) {
    const RankGroup& from = input_.replicas[i].units[rank];
    const RankGroup& to = input_.replicas[i].units[schedule_.rank_of[other_stage(action)]];
    Transfer& transfer = transfers_.emplace_back();
    const StageTimes& stage = input_.replicas[i].stages[action.stage];
    const bool on = action.kind == Kind::send_activation;
    // Without bytes the message takes the time that the durations say: none.
    if ((on ? stage.message_on : stage.message_back) > 0) {
      network_.add_path(transfer.path, from.first, to.first, static_cast<double>(from.count));
      transfer.bytes = sizes_.message_bytes;
      transfer.latency = network_.latency(from.first, to.first);
    }
    transfer.replica = i, transfer.rank = rank, transfer.index = index;
    put(lanes_[{i, lane_of(schedule_, action)}], transfers_.size() - 1);
  }

  // All members of a group have a bucket: its ring may begin.
  void ready(const Event& event) {
    const std::int64_t group = input_.replicas[event.replica].reduce_group;
    const auto& members = members_[group];
    std::size_t& count = ready_[{group, event.rank, event.index, event.bucket}];
    if (++count < members.size()) return;
    const int stage = schedule_.actions[event.rank][event.index].stage;
    Transfer& transfer = transfers_.emplace_back();
    transfer.is_message = false;
    transfer.replica = members.front(), transfer.rank = event.rank;
    transfer.index = places_.of({Kind::reduce_gradients, stage, pipeline_parallel::no_micro_batch});
    add_ring(transfer, members, stage);
    put(rings_[{group, event.rank}], transfers_.size() - 1);
  }

  // The ring runs at the rate of its slowest hop, so all hops carry the same flow. Its latencies
  // are those of longest_path(): what the bucket takes beyond its bytes.
  void add_ring(Transfer& transfer, const std::vector<std::size_t>& members, int stage) {
    const auto unit = [&](std::size_t m) -> const RankGroup& {
      return input_.replicas[members[m]].units[transfer.rank];
    };
    // With context ranks, which the mesh has inside of dp, the ring passes those of a unit first.
    const std::int64_t c = sizes_.context_ranks, inside = unit(0).count / c;
    const auto n = static_cast<std::int64_t>(members.size());
    const RankGroup group{unit(0).first, n * c,
                          c > 1 ? unit(0).stride * inside : unit(1).first - unit(0).first};
    for (std::int64_t place = 0; place < group.count; ++place)
      network_.add_hop(transfer.path, group, place, static_cast<double>(inside));
    transfer.bytes = sizes_.bucket_bytes[stage];
    const double undisturbed = transfer.bytes / network_.undisturbed_rate(group);
    transfer.latency =
        std::max(0.0, input_.replicas[members.front()].stages[stage].bucket - undisturbed);
  }

  void put(Line& line, std::size_t id) {
    line_of_[id] = &line;
    line.waiting.push_back(id);
    if (!line.busy) begin_next(line);
  }

  void begin_next(Line& line) {
    line.busy = !line.waiting.empty();
    if (!line.busy) return;
    Transfer& transfer = transfers_[line.waiting.front()];
    transfer.start = now_;
    events_.push({Event::flow_begins, now_ + transfer.latency, line.waiting.front(), 0, 0, 0});
    line.waiting.pop_front();
  }

  void happen(const Event& event) {
    if (event.what == Event::unit_is_free) {
      units_[event.replica][event.rank].computes = false;
      go_on(event.replica, event.rank);
    } else if (event.what == Event::bucket_is_ready) {
      ready(event);
    } else if (transfers_[event.replica].path.empty()) {
      end(event.replica);
    } else {
      network_.start(event.replica, transfers_[event.replica].path,
                     transfers_[event.replica].bytes);
    }
  }

  void end(std::size_t id) {
    Transfer& transfer = transfers_[id];
    Line& line = *line_of_[id];
    if (transfer.is_message) {
      span(transfer.replica, transfer.rank, transfer.index) = {transfer.start, now_};
      const Action received = matching(schedule_.actions[transfer.rank][transfer.index]);
      go_on(transfer.replica, schedule_.rank_of[received.stage]);
    } else {
      timeline_.reduced = std::max(timeline_.reduced, now_);
      for (const std::size_t i : members_[input_.replicas[transfer.replica].reduce_group]) {
        auto& whole = span(i, transfer.rank, transfer.index);
        whole = {whole.end < 0 ? transfer.start : whole.start, now_};
      }
    }
    transfer.path = {};
    begin_next(line);
  }

  const PathInput& input_;
  const Schedule& schedule_;
  const Transfers& sizes_;
  FluidNetwork network_;
  const pipeline_parallel::Places places_;
  std::vector<std::vector<Unit>> units_;                      // [replica][pipeline rank]
  std::map<std::int64_t, std::vector<std::size_t>> members_;  // of each reduce group
  std::map<std::tuple<std::int64_t, int, int, int>, std::size_t> ready_;
  std::map<std::pair<std::size_t, pipeline_parallel::Lane>, Line> lanes_;
  std::map<std::pair<std::int64_t, int>, Line> rings_;
  std::deque<Transfer> transfers_;  // a deque: flows keep references to paths
  std::map<std::size_t, Line*> line_of_;
  std::priority_queue<Event> events_;
  double now_ = 0;
  Timeline timeline_;
};

}  // namespace

Timeline congested_path(const PathInput& input, const Transfers& transfers,
                        const Machine& machine) {
  std::set<std::int64_t> groups;
  for (const Replica& replica : input.replicas)
    require(groups.insert(replica.shard_group).second || !input.stragglers.any(),
            "slow ranks, sharded parameters or experts, and --congestion cannot be simulated "
            "together: leave out one of them");
  return Walk(input, transfers, machine).run();
}

}  // namespace ringside::planning
