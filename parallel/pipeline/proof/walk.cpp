#include "parallel/pipeline/proof/walk.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ringside::pipeline_parallel {

Walk::Walk(const Schedule& lowered, const Places& places, Sends sends)
    : schedule_(lowered), places_(places), sends_(sends), next_(lowered.actions.size(), 0) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < lowered.ranks(); ++rank) {
      while (!finished(rank) && !waited_for(rank)) {
        pass(rank);
        moved = true;
      }
    }
  }
}

bool Walk::finished(int rank) const {
  return next_[rank] == static_cast<int>(schedule_.actions[rank].size());
}

std::optional<Action> Walk::waited_for(int rank) const {
  const Action& action = next_action(rank);
  // How many actions the rank of this one has passed.
  const auto passed = [&](const Action& other) { return next_[schedule_.rank_of[other.stage]]; };
  if (const auto needed = receive_before(schedule_, action)) {
    const Action send = matching(*needed);
    return passed(send) > places_.of(send) ? std::nullopt : std::optional(send);
  }
  if (!is_send(action.kind) || sends_ == Sends::buffered) return std::nullopt;
  const auto before = last_sent_.find(lane_of(schedule_, action));
  if (before == last_sent_.end()) return std::nullopt;
  const Action receive = matching(before->second);
  return passed(receive) > places_.of(receive) ? std::nullopt : std::optional(receive);
}

void Walk::pass(int rank) {
  const Action& action = next_action(rank);
  if (sends_ == Sends::one_per_lane && is_send(action.kind))
    last_sent_.insert_or_assign(lane_of(schedule_, action), action);
  order_.push_back({rank, next_[rank]++});
}

std::vector<Place> in_order(const Schedule& lowered, const Places& places) {
  const Walk walk(lowered, places, Sends::buffered);
  for (int rank = 0; rank < lowered.ranks(); ++rank)
    require(walk.finished(rank),
            "rank {} waits in {} forever, so the schedule has no end: `ringside prove pipeline` "
            "says why",
            rank, walk.finished(rank) ? "" : text_of(walk.next_action(rank)));
  return walk.order();
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
  span(at) = {now[at.rank], now[at.rank]};
}

void Clocks::compute(const Place& at, double seconds) {
  double& now_here = now[at.rank];
  if (const auto needed = receive_before(schedule_, schedule_.actions[at.rank][at.index])) {
    const Action sent = matching(*needed);
    const double arrived = span({schedule_.rank_of[sent.stage], places_.of(sent)}).end;
    Span& received = span({at.rank, places_.of(*needed)});
    received.end = std::max(received.start, arrived);
    now_here = std::max(now_here, arrived);
  }
  span(at) = {now_here, now_here + seconds};
  now_here += seconds;
}

}  // namespace ringside::pipeline_parallel
