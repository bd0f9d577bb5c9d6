#include "parallel/pipeline/proof/deadlock.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parallel/pipeline/lower.hpp"
#include "parallel/pipeline/proof/places.hpp"

namespace ringside::pipeline_parallel {

namespace {

const char* in_words(Sends sends) {
  switch (sends) {
    case Sends::buffered:
      return "where sends are buffered";
    case Sends::one_per_lane:
      return "where nothing is buffered";
    case Sends::blocking:
      break;
  }
  return "where sends block";
}

// All ranks on one thread, each as far as it gets.
class Walk {
 public:
  Walk(const Schedule& schedule, Sends sends)
      : schedule_(schedule), sends_(sends), places_(schedule), next_(schedule.ranks()) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < schedule_.ranks(); ++rank) {
        while (!finished(rank) && !waited_for(rank)) {
          pass(rank);
          moved = true;
        }
      }
    }
  }

  bool finished(int rank) const {
    return next_[rank] == static_cast<int>(schedule_.actions[rank].size());
  }

  // The action of another rank that `rank` waits for; none if it can go on.
  std::optional<Action> waited_for(int rank) const {
    const Action& action = next_action(rank);
    if (is_receive(action.kind)) {
      const Action send = matching(action);
      // A blocking send is still under way when its receive begins.
      const int done = sends_ == Sends::blocking ? 0 : 1;
      return next_[rank_of(send)] >= places_.of(send) + done ? std::nullopt : std::optional(send);
    }
    if (!is_send(action.kind) || sends_ == Sends::buffered) return std::nullopt;
    const auto before = last_sent_.find(lane_of(schedule_, action));
    if (sends_ == Sends::one_per_lane && before == last_sent_.end()) return std::nullopt;
    const Action receive = matching(sends_ == Sends::blocking ? action : before->second);
    return next_[rank_of(receive)] >= places_.of(receive) ? std::nullopt : std::optional(receive);
  }

  // From rank to rank along the waiting; cut off what leads into the circle.
  std::vector<int> circle() const {
    std::vector<int> chain;
    int rank = 0;
    while (finished(rank)) ++rank;
    while (std::find(chain.begin(), chain.end(), rank) == chain.end()) {
      chain.push_back(rank);
      rank = rank_of(*waited_for(rank));
    }
    chain.erase(chain.begin(), std::find(chain.begin(), chain.end(), rank));
    std::rotate(chain.begin(), std::min_element(chain.begin(), chain.end()), chain.end());
    return chain;
  }

  const Action& next_action(int rank) const { return schedule_.actions[rank][next_[rank]]; }
  int rank_of(const Action& action) const { return schedule_.rank_of[action.stage]; }

 private:
  void pass(int rank) {
    const Action& action = next_action(rank);
    if (is_send(action.kind)) last_sent_.insert_or_assign(lane_of(schedule_, action), action);
    ++next_[rank];
  }

  const Schedule& schedule_;
  Sends sends_;
  Places places_;
  std::vector<int> next_;  // the index of each rank's next action
  std::map<Lane, Action> last_sent_;
};

}  // namespace

std::string find_deadlock(const Schedule& lowered, Sends sends) {
  Walk walk(lowered, sends);
  walk.run();
  bool all_finished = true;
  for (int rank = 0; rank < lowered.ranks(); ++rank)
    all_finished = all_finished && walk.finished(rank);
  if (all_finished) return "";
  std::vector<std::string> waits;
  for (const int rank : walk.circle()) {
    const Action missing = *walk.waited_for(rank);
    waits.push_back(fmt::format("rank {} waits in {} for {} of rank {}", rank,
                                text_of(walk.next_action(rank)), text_of(missing),
                                walk.rank_of(missing)));
  }
  return fmt::format("deadlock {}: {}", in_words(sends), fmt::join(waits, "; "));
}

}  // namespace ringside::pipeline_parallel
