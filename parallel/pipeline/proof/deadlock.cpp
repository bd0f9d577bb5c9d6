#include "parallel/pipeline/proof/deadlock.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parallel/pipeline/proof/places.hpp"

namespace ringside::pipeline_parallel {

namespace {

const char* in_words(Sends sends) {
  return sends == Sends::buffered ? "where sends are buffered" : "where nothing is buffered";
}

}  // namespace

std::string find_deadlock(const Schedule& lowered, Sends sends) {
  const Places places(lowered);
  const Walk walk(lowered, places, sends);
  int rank = 0;
  while (rank < lowered.ranks() && walk.finished(rank)) ++rank;
  if (rank == lowered.ranks()) return "";

  // From rank to rank along the waiting; cut off what leads into the circle.
  const auto rank_of = [&](const Action& action) { return lowered.rank_of[action.stage]; };
  std::vector<int> circle;
  for (; std::find(circle.begin(), circle.end(), rank) == circle.end();
       rank = rank_of(*walk.waited_for(rank)))
    circle.push_back(rank);
  circle.erase(circle.begin(), std::find(circle.begin(), circle.end(), rank));
  std::rotate(circle.begin(), std::min_element(circle.begin(), circle.end()), circle.end());

  std::vector<std::string> waits;
  for (const int waiting : circle) {
    const Action missing = *walk.waited_for(waiting);
    waits.push_back(fmt::format("rank {} waits in {} for {} of rank {}", waiting,
                                text_of(walk.next_action(waiting)), text_of(missing),
                                rank_of(missing)));
  }
  return fmt::format("deadlock {}: {}", in_words(sends), fmt::join(waits, "; "));
}

}  // namespace ringside::pipeline_parallel
