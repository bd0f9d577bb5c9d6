// The wait-for graph: which ranks of a job wait for whom, in all their groups together.
//
// Who waits is innocent. A chain of waits ends at the rank to look at, which others wait for and
// which waits for nobody; if it has no end, ranks wait in a circle.
//
//     1 -> 0 -> 4 -> 7        ends() is 7, although 1 shares no group with 7
//     1 -> 0 -> 4 -> 0        no end; circle() is 0, 4
//
// A rank that waits uses it while the job runs (control_channel.hpp); `ringside status` and
// `ringside postmortem` make it from flight records. Ranks have their numbers in the job.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "collectives/rank_names.hpp"

namespace ringside::collectives {

class WaitGraph {
 public:
  // A rank may wait in several groups at once, on threads of its own.
  void add(int rank, int waits_for) { waits_for_[rank].insert(waits_for); }

  // [rank] for whom it waits
  const std::map<int, std::set<int>>& waits() const { return waits_for_; }

  // The waits of `rank`, of those for whom it waits, and so on.
  WaitGraph reachable_from(int rank) const;

  // Ranks that others wait for, and that wait for nobody.
  std::vector<int> ends() const;

  // Ranks each of which waits for the next, and the last for the first, which is the lowest. Empty
  // if there is none.
  std::vector<int> circle() const;

 private:
  std::map<int, std::set<int>> waits_for_;
};

// "Ranks wait for each other in a circle: rank 0 for rank 1, rank 1 for rank 0"
std::string circle_in_words(const std::vector<int>& ranks, const RankNames& names);

}  // namespace ringside::collectives
