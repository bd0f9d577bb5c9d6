#include "pipeline_parallel/proof/timing.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "pipeline_parallel/lower.hpp"
#include "pipeline_parallel/proof/places.hpp"

namespace ringside::pipeline_parallel {

namespace {

// All ranks on one thread, each as far as it gets, with a clock for each.
class TimedWalk {
 public:
  TimedWalk(const Schedule& schedule, const Durations& durations)
      : schedule_(schedule),
        durations_(durations),
        places_(schedule),
        now_(schedule.ranks()),
        spans_(schedule.ranks()) {}

  std::vector<std::vector<Span>> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.ranks(); ++rank) {
        while (!finished(rank) && can_go_on(next_action(rank))) {
          take(rank, next_action(rank));
          moved = true;
        }
      }
    }
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      require(finished(rank),
              "rank {} waits in {} forever, so the schedule has no end: verify() says why", rank,
              finished(rank) ? "" : text_of(next_action(rank)));
    }
    return spans_;
  }

 private:
  bool finished(int rank) const { return spans_[rank].size() == schedule_.actions[rank].size(); }
  const Action& next_action(int rank) const { return schedule_.actions[rank][spans_[rank].size()]; }
  int rank_of(const Action& action) const { return schedule_.rank_of[action.stage]; }

  bool can_go_on(const Action& action) const {
    if (!is_receive(action.kind)) return true;
    const Action send = matching(action);
    return static_cast<int>(spans_[rank_of(send)].size()) > places_.of(send);
  }

  void take(int rank, const Action& action) {
    const double start = now_[rank];
    if (is_send(action.kind)) {
      // The span of a send is that of its message; the rank goes on at once.
      double& free = lane_free_[lane_of(schedule_, action)];
      const double departure = std::max(start, free);
      free = departure + durations_.message;
      spans_[rank].push_back({departure, free});
      return;
    }
    double end = start + durations_.of(action.kind);
    if (is_receive(action.kind)) {
      const Action send = matching(action);
      end = std::max(start, spans_[rank_of(send)][places_.of(send)].end);
    }
    spans_[rank].push_back({start, end});
    now_[rank] = end;
  }

  const Schedule& schedule_;
  const Durations& durations_;
  Places places_;
  std::vector<double> now_;           // of each rank
  std::map<Lane, double> lane_free_;  // when each lane has carried what it was given
  std::vector<std::vector<Span>> spans_;
};

}  // namespace

double Durations::of(Kind kind) const {
  switch (kind) {
    case Kind::forward:
      return forward;
    case Kind::backward:
      return backward;
    case Kind::backward_input:
      return input();
    case Kind::backward_weight:
      return weight;
    default:
      return 0;
  }
}

double Timing::bubble() const {
  const double all = step * static_cast<double>(busy.size());
  return all > 0 ? 1 - std::accumulate(busy.begin(), busy.end(), 0.0) / all : 0;
}

Timing time_of(const Schedule& lowered, const Durations& durations) {
  require(durations.forward >= 0 && durations.weight >= 0 && durations.message >= 0,
          "durations must not be negative");
  require(durations.weight <= durations.backward,
          "W is a part of backward, so it cannot take {:g} where backward takes {:g}",
          durations.weight, durations.backward);
  Timing timing;
  timing.spans = TimedWalk(lowered, durations).run();
  for (int rank = 0; rank < lowered.ranks(); ++rank) {
    double busy = 0, waiting = 0, last_end = -1;  // -1: no computation yet
    for (std::size_t i = 0; i < lowered.actions[rank].size(); ++i) {
      const auto [start, end] = timing.spans[rank][i];
      if (!is_computation(lowered.actions[rank][i].kind)) continue;
      busy += durations.of(lowered.actions[rank][i].kind);
      if (last_end >= 0) waiting += start - last_end;
      last_end = end;
    }
    timing.busy.push_back(busy);
    timing.waiting.push_back(waiting);
    timing.step = std::max(timing.step, last_end);
  }
  return timing;
}

}  // namespace ringside::pipeline_parallel
