#include "parallel/pipeline/proof/walk.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ringside::pipeline_parallel {

// All ranks on one thread, each as far as it gets.
std::vector<Place> in_order(const Schedule& lowered, const Places& places) {
  std::vector<Place> order;
  std::vector<int> next(lowered.actions.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < lowered.ranks(); ++rank) {
      const std::vector<Action>& actions = lowered.actions[rank];
      for (; next[rank] < static_cast<int>(actions.size()); ++next[rank]) {
        const Action& action = actions[next[rank]];
        if (is_receive(action.kind)) {
          const Action send = matching(action);
          if (next[lowered.rank_of[send.stage]] <= places.of(send)) break;
        }
        order.push_back({rank, next[rank]});
        moved = true;
      }
    }
  }
  for (int rank = 0; rank < lowered.ranks(); ++rank) {
    const std::vector<Action>& actions = lowered.actions[rank];
    const bool finished = next[rank] == static_cast<int>(actions.size());
    require(finished,
            "rank {} waits in {} forever, so the schedule has no end: `ringside prove pipeline` "
            "says why",
            rank, finished ? "" : text_of(actions[next[rank]]));
  }
  return order;
}

Clocks::Clocks(const Schedule& lowered, const Places& places)
    : now(lowered.actions.size(), 0), schedule_(lowered), places_(places) {
  for (const std::vector<Action>& actions : lowered.actions) spans.emplace_back(actions.size());
}

void Clocks::send(const Place& at, double seconds) {
  double& free = lane_free_[lane_of(schedule_, schedule_.actions[at.rank][at.index])];
  const double departure = std::max(now[at.rank], free);
  free = departure + seconds;
  span(at) = {departure, free};
}

void Clocks::receive(const Place& at) {
  const Action sent = matching(schedule_.actions[at.rank][at.index]);
  const double start = now[at.rank],
               arrived = span({schedule_.rank_of[sent.stage], places_.of(sent)}).end;
  now[at.rank] = std::max(start, arrived);
  span(at) = {start, now[at.rank]};
}

void Clocks::compute(const Place& at, double seconds) {
  span(at) = {now[at.rank], now[at.rank] + seconds};
  now[at.rank] += seconds;
}

}  // namespace ringside::pipeline_parallel
