#include "collectives/diagnostics/wait_graph.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace ringside::collectives {

WaitGraph WaitGraph::reachable_from(int rank) const {
  WaitGraph found;
  std::vector<int> next{rank};
  while (!next.empty()) {
    const auto waits = waits_for_.find(next.back());
    next.pop_back();
    if (waits != waits_for_.end() && found.waits_for_.insert(*waits).second)
      next.insert(next.end(), waits->second.begin(), waits->second.end());
  }
  return found;
}

std::vector<int> WaitGraph::ends() const {
  std::set<int> ends;
  for (const auto& [rank, awaited] : waits_for_)
    for (const int each : awaited)
      if (!waits_for_.contains(each)) ends.insert(each);
  return {ends.begin(), ends.end()};
}

std::vector<int> WaitGraph::circle() const {
  for (const auto& [first, awaited] : waits_for_) {
    std::vector<int> passed;
    for (auto at = waits_for_.find(first); at != waits_for_.end();
         at = waits_for_.find(*at->second.begin())) {
      const auto before = std::ranges::find(passed, at->first);
      if (before != passed.end()) {
        passed.erase(passed.begin(), before);
        std::ranges::rotate(passed, std::ranges::min_element(passed));
        return passed;
      }
      passed.push_back(at->first);
    }
  }
  return {};
}

std::string circle_in_words(const std::vector<int>& ranks, const RankNames& names) {
  std::string text = "Ranks wait for each other in a circle: ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{}rank {} for rank {}", i == 0 ? "" : ", ", names(ranks[i]),
                        names(ranks[(i + 1) % ranks.size()]));
  return text;
}

}  // namespace ringside::collectives
