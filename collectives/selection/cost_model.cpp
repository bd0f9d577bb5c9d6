#include "collectives/selection/cost_model.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "collectives/execution/data_flow.hpp"
#include "collectives/execution/executor_options.hpp"

namespace ringside::collectives {
namespace {

// The walk takes at most this many moves, over all ranks and steps, and its tables have at most
// this many entries. For longer buffers it uses longer slices, each of which costs as many messages
// as it stands for: the pipeline is a little coarser, the totals are the same.
constexpr double most_moves = 50000, most_entries = 500000;

// Seconds in which the executor copies a piece of memory, without its bytes: in a step within its
// rank, and for each piece of a message after the first. It is the same over every transport. It
// counts where the cores are known; elsewhere a copy is free, as in the literature.
constexpr double copy_of_piece = 0.4e-6;

// To see another rank's announcement takes this part of a message's overhead: there is no slot to
// wait for, and no header to compare.
constexpr double overhead_of_announced = 0.25;

constexpr double not_yet = -1;

// A slice that a rank sends or receives. `entry` is its index in the tables of RankWalk. `needs` is
// the index of the slice that must be done first: a receive before a send, a send before a receive.
struct Move {
  int peer = 0, entry = 0, needs = -1;
  double bytes = 0, messages = 1;
  double copying = 0;  // core-seconds of copies within the rank
  bool adds = false;
};

struct RankWalk {
  std::vector<Move> sends, receives;  // in the order in which the executor takes them
  std::size_t next_send = 0, next_receive = 0;
  double out_free = 0, in_free = 0;  // when the outgoing and the incoming port are free again
  // [entry] the times when a slice has left, when it arrives, and when it has been received
  std::vector<double> left, arrives, received;
  // [entry] how many messages wait for each other until then
  std::vector<int> before_left, before_received;
  Sent sent;
};

class Walk {
 public:
  Walk(const std::vector<Schedule>& schedules, const Chunks& chunks, std::size_t element_bytes,
       const CostParameters& parameters)
      : chunks_(chunks), element_(element_bytes), parameters_(parameters) {
    set_slices(schedules);
    const double ranks_per_core =
        parameters.cores > 0 ? static_cast<double>(schedules.size()) / parameters.cores : 0;
    sharing_ = std::max(1.0, ranks_per_core);
    latency_ = std::max(0.0, parameters.alpha - parameters.overhead);
    delay_ = latency_ + parameters.turn * std::max(0.0, ranks_per_core - 1);
    for (int rank = 0; rank < static_cast<int>(schedules.size()); ++rank)
      ranks_.push_back(make_walk(schedules[rank], rank));
  }

  Cost run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
        while (send_next(rank) || receive_next(rank)) moved = true;
    }
    return sum_up();
  }

 private:
  double bytes_of(ChunkRange range) const {
    return static_cast<double>(chunks_.size(range) * element_);
  }
  int slices_of(double bytes) const {
    return slice_ > 0 ? std::max(1, static_cast<int>(std::ceil(bytes / slice_))) : 1;
  }

  // Sets the slices: those of the executor, or longer ones if there would be too many moves.
  void set_slices(const std::vector<Schedule>& schedules) {
    double longest = 0;
    std::size_t steps = 1, sends = 1;
    bool single_chunks = true;
    for (const Schedule& schedule : schedules) {
      steps = std::max(steps, schedule.steps.size());
      for (const Step& step : schedule.steps) {
        if (!step.send) continue;
        ++sends;
        longest = std::max(longest, bytes_of(step.send->chunks));
        single_chunks = single_chunks && step.send->chunks.count <= 1;
      }
    }
    const double entries = static_cast<double>(steps * schedules.size());
    const double most = std::max(
        1.0, std::floor(std::min(most_moves / static_cast<double>(sends), most_entries / entries)));
    if (parameters_.slice_bytes > 0)
      slice_ = std::max(static_cast<double>(parameters_.slice_bytes), std::ceil(longest / most));
    slices_ = slices_of(longest);
    segment_ = single_chunks ? std::min(slices_, ExecutorOptions{}.slices_per_segment) : slices_;
  }

  RankWalk make_walk(const Schedule& schedule, int rank) const {
    const DataFlow flow = data_flow(schedule, false);
    const int steps = static_cast<int>(schedule.steps.size());
    RankWalk walk;
    for (auto* times : {&walk.left, &walk.arrives, &walk.received})
      times->assign(static_cast<std::size_t>(steps * slices_), not_yet);
    for (auto* counts : {&walk.before_left, &walk.before_received})
      counts->assign(static_cast<std::size_t>(steps * slices_), 0);
    for (int begin = 0; begin < slices_; begin += segment_)
      for (int s = 0; s < steps; ++s) {
        const Step& step = schedule.steps[s];
        if (step.send && step.send->to != rank)
          add_slices(walk.sends, s, begin, step.send->to, step.send->chunks, flow.send_needs[s],
                     schedule, false);
        if (begin == 0 && step.send && step.send->to != rank) count(step.send->chunks, walk.sent);
        if (step.receive)
          add_slices(walk.receives, s, begin, step.receive->from, step.receive->chunks,
                     flow.receive_needs[s], schedule, true, step.receive->from == rank);
      }
    return walk;
  }

  // Counts messages as the executor sends them, also if the walk uses longer slices.
  void count(ChunkRange range, Sent& sent) const {
    const std::uint64_t slice = parameters_.slice_bytes;
    const std::uint64_t bytes = chunks_.size(range) * element_;
    sent.messages += slice > 0 ? std::max<std::uint64_t>(1, (bytes + slice - 1) / slice) : 1;
    sent.bytes += bytes;
  }

  void add_slices(std::vector<Move>& moves, int step, int begin, int peer, ChunkRange range,
                  DataFlow::Need need, const Schedule& schedule, bool receiving,
                  bool local = false) const {
    const double bytes = bytes_of(range);
    const int end = std::min(begin + segment_, slices_of(bytes));
    for (int slice = begin; slice < end; ++slice) {
      Move move{.peer = peer, .entry = step * slices_ + slice};
      move.bytes = slice_ > 0 ? std::min(slice_, bytes - slice * slice_) : bytes;
      if (slice_ > 0)
        move.messages = std::max(1.0, move.bytes / static_cast<double>(parameters_.slice_bytes));
      if (parameters_.cores > 0) {
        if (slice == 0) move.copying = (range.pieces() - (local ? 0 : 1)) * copy_of_piece;
        if (local) move.copying += move.bytes * parameters_.copy;
      }
      move.adds = receiving && schedule.steps[step].receive->action == Action::add;
      if (need.step != DataFlow::none) {
        const Step& first = schedule.steps[need.step];
        const ChunkRange awaited = receiving ? first.send->chunks : first.receive->chunks;
        const int last = std::min(begin + segment_, slices_of(bytes_of(awaited))) - 1;
        if (last >= begin) move.needs = need.step * slices_ + (need.same_chunks ? slice : last);
      }
      moves.push_back(move);
    }
  }

  double busy(const Move& move) const {
    return move.messages * parameters_.overhead + move.bytes * parameters_.beta;
  }

  bool send_next(int rank) {
    RankWalk& walk = ranks_[rank];
    if (walk.next_send == walk.sends.size()) return false;
    const Move& move = walk.sends[walk.next_send];
    const double data_is_there = move.needs < 0 ? 0 : walk.received[move.needs];
    if (data_is_there == not_yet) return false;
    const double start = std::max(walk.out_free, data_is_there);
    walk.left[move.entry] = walk.out_free = start + busy(move) + move.copying * sharing_;
    walk.arrives[move.entry] = walk.out_free + delay_;
    if (move.needs >= 0) walk.before_left[move.entry] = walk.before_received[move.needs];
    ++walk.next_send;
    return true;
  }

  bool receive_next(int rank) {
    RankWalk& walk = ranks_[rank];
    if (walk.next_receive == walk.receives.size()) return false;
    const Move& move = walk.receives[walk.next_receive];
    const bool own = move.peer == rank;
    const double arrival = own ? 0 : ranks_[move.peer].arrives[move.entry];
    // The chunk may be overwritten once its old content has left.
    const double writable = move.needs < 0 || own ? 0 : walk.left[move.needs];
    if (arrival == not_yet || writable == not_yet) return false;
    // Nothing is waited for during a copy, so ranks that share a core copy one after the other.
    const double taken = (own ? walk.in_free : std::max(arrival, walk.in_free + busy(move))) +
                         move.copying * sharing_;
    walk.received[move.entry] = walk.in_free =
        std::max(taken, writable) + (move.adds ? move.bytes * parameters_.gamma : 0);
    int& before = walk.before_received[move.entry];
    if (!own) before = ranks_[move.peer].before_left[move.entry] + 1;
    if (!own && move.needs >= 0) before = std::max(before, walk.before_left[move.needs]);
    waits_ = std::max(waits_, before);
    ++walk.next_receive;
    return true;
  }

  Cost sum_up() const {
    Cost cost;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankWalk& walk = ranks_[rank];
      require(
          walk.next_send == walk.sends.size() && walk.next_receive == walk.receives.size(),
          "rank {} waits for a message that is never sent: these schedules do not end (ringside "
          "prove says why)",
          rank);
      cost.path = std::max({cost.path, walk.in_free, walk.out_free});
      for (const Move& move : walk.sends)
        cost.work += 2 * (move.messages * parameters_.overhead + move.bytes * parameters_.copy) +
                     move.copying;
      for (const Move& move : walk.receives)
        cost.work += (move.adds ? move.bytes * parameters_.gamma : 0) + move.copying;
      cost.sent.push_back(walk.sent);
    }
    cost.latency = waits_ * latency_;
    cost.seconds = parameters_.cores > 0
                       ? std::max(cost.path, cost.latency + cost.work / parameters_.cores)
                       : cost.path;
    return cost;
  }

  const Chunks& chunks_;
  const std::size_t element_;
  const CostParameters& parameters_;
  double sharing_ = 1;            // ranks for each core, at least 1
  double latency_ = 0;            // seconds from when a message has left until it arrives
  double delay_ = 0;              // the same, and until its receiver has a core
  int waits_ = 0;                 // the most messages that wait for each other
  double slice_ = 0;              // bytes; 0: chunks are not sliced
  int slices_ = 1, segment_ = 1;  // slices of the longest message, and of a segment
  std::vector<RankWalk> ranks_;
};

// A place between two of some lengths, on a logarithmic scale; at either end for bytes beyond it.
struct Between {
  template <std::size_t n>
  Between(const std::uint64_t (&lengths)[n], std::uint64_t buffer_bytes) {
    const auto log_of = [](std::uint64_t bytes) { return std::log(static_cast<double>(bytes)); };
    const std::uint64_t bytes = std::clamp(buffer_bytes, lengths[0], lengths[n - 1]);
    while (low + 2 < n && bytes > lengths[low + 1]) ++low;
    share =
        (log_of(bytes) - log_of(lengths[low])) / (log_of(lengths[low + 1]) - log_of(lengths[low]));
  }
  double of(double at_low, double at_high) const { return (1 - share) * at_low + share * at_high; }

  std::size_t low = 0;
  double share = 0;  // of the value at low + 1
};

}  // namespace

CostParameters MachineCosts::at(std::uint64_t buffer_bytes) const {
  const Between place(lengths, buffer_bytes);
  const PerByte &low = per_byte[place.low], &high = per_byte[place.low + 1];
  CostParameters costs = common;
  costs.beta = place.of(low.beta, high.beta);
  costs.copy = place.of(low.copy, high.copy);
  costs.gamma = place.of(low.gamma, high.gamma);
  return costs;
}

// Seconds of a call that is announced (execution/announcing_executor.hpp). It is not walked: a rank
// waits once in each round, and copies what it shows once, not for each other rank.
static double announced_seconds(const Algorithm& algorithm, int ranks, std::uint64_t buffer_bytes,
                                const CostParameters& parameters) {
  using enum Collective;
  const double p = ranks, others = p - 1, bytes = static_cast<double>(buffer_bytes);
  // How many buffers a rank shows and reads, and how many of these it adds.
  double shown = others / p, read = others / p, added = 0, rounds = 1;
  if (algorithm.collective == reduce_scatter) added = read;
  if (algorithm.collective == all_gather) shown = 1 / p;
  if (algorithm.collective == all_reduce) {
    const bool two_shot = algorithm.name == "two_shot";
    shown = 1;
    read = others * (two_shot ? 2 / p : 1);
    added = others * (two_shot ? 1 / p : 1);
    rounds = two_shot ? 2 : 1;
  }
  rounds *= std::max(1.0, std::ceil(bytes / static_cast<double>(parameters.announced_bytes)));
  const double per_core = parameters.cores > 0 ? std::max(1.0, p / parameters.cores) : 1;
  return rounds * (parameters.alpha + parameters.turn * (per_core - 1)) +
         per_core * (rounds * others * overhead_of_announced * parameters.overhead +
                     bytes * ((shown + read) * parameters.copy + added * parameters.gamma));
}

double MachineCosts::correction(const Algorithm& algorithm, int ranks,
                                std::uint64_t buffer_bytes) const {
  for (const Correction& each : corrections) {
    if (each.algorithm != number_of(algorithm) || each.ranks != static_cast<std::uint64_t>(ranks))
      continue;
    const Between place(Correction::lengths, buffer_bytes);
    return place.of(each.factors[place.low], each.factors[place.low + 1]);
  }
  return 1;
}

Cost cost_of(const std::vector<Schedule>& schedules, const Chunks& chunks,
             std::size_t element_bytes, const CostParameters& parameters) {
  return Walk(schedules, chunks, element_bytes, parameters).run();
}

double least_seconds(const std::vector<Schedule>& schedules, const Chunks& chunks,
                     std::size_t element_bytes, const CostParameters& parameters) {
  double busiest = 0, work = 0;
  for (int rank = 0; rank < static_cast<int>(schedules.size()); ++rank) {
    double out = 0, in = 0;  // seconds in which the ports of this rank are busy
    const auto bytes_of = [&](ChunkRange range) {
      return static_cast<double>(chunks.size(range) * element_bytes);
    };
    const auto overhead_of = [&](double bytes) {
      const auto slice = static_cast<double>(parameters.slice_bytes);
      return parameters.overhead * (slice > 0 ? std::max(1.0, bytes / slice) : 1);
    };
    for (const Step& step : schedules[rank].steps) {
      if (step.send && step.send->to != rank) {
        const double bytes = bytes_of(step.send->chunks), overhead = overhead_of(bytes);
        out += overhead + bytes * parameters.beta;
        work += 2 * (overhead + bytes * parameters.copy);
      }
      if (!step.receive) continue;
      const double bytes = bytes_of(step.receive->chunks);
      const double adding = step.receive->action == Action::add ? bytes * parameters.gamma : 0;
      if (step.receive->from != rank) in += overhead_of(bytes) + bytes * parameters.beta;
      in += adding;
      work += adding;
    }
    busiest = std::max({busiest, out, in});
  }
  return parameters.cores > 0 ? std::max(busiest, work / parameters.cores) : busiest;
}

Cost cost_of(const Algorithm& algorithm, int size, std::uint64_t bytes,
             const CostParameters& parameters) {
  const std::vector<Schedule> schedules = make_schedules(algorithm, size);
  return cost_of(schedules, Chunks::even(bytes, schedules[0].chunks), 1, parameters);
}

double MachineCosts::uncorrected_seconds_of(const Algorithm& algorithm, int ranks,
                                            std::uint64_t buffer_bytes) const {
  const CostParameters costs = at(buffer_bytes);
  return announces(algorithm) ? announced_seconds(algorithm, ranks, buffer_bytes, costs)
                              : cost_of(algorithm, ranks, buffer_bytes, costs).seconds;
}

double MachineCosts::seconds_of(const Algorithm& algorithm, int ranks,
                                std::uint64_t buffer_bytes) const {
  return uncorrected_seconds_of(algorithm, ranks, buffer_bytes) *
         correction(algorithm, ranks, buffer_bytes);
}

double MachineCosts::least_seconds_of(const Algorithm& algorithm, int ranks,
                                      std::uint64_t buffer_bytes) const {
  if (announces(algorithm)) return seconds_of(algorithm, ranks, buffer_bytes);
  const std::vector<Schedule> schedules = make_schedules(algorithm, ranks);
  return least_seconds(schedules, Chunks::even(buffer_bytes, schedules[0].chunks), 1,
                       at(buffer_bytes)) *
         correction(algorithm, ranks, buffer_bytes);
}

}  // namespace ringside::collectives
