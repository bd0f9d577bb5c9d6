// The wait-for graph of a job: its ends, its circles, and what a rank needs of it.
#include "collectives/diagnostics/wait_graph.hpp"

#include <doctest/doctest.h>

using namespace ringside::collectives;

namespace {

WaitGraph graph_of(const std::vector<std::pair<int, int>>& waits) {
  WaitGraph graph;
  for (const auto& [rank, waits_for] : waits) graph.add(rank, waits_for);
  return graph;
}

using Ranks = std::vector<int>;

}  // namespace

TEST_CASE("a chain of waits is followed to its end, from where a rank stands") {
  const WaitGraph graph = graph_of({{1, 0}, {0, 4}, {4, 7}, {2, 3}});
  CHECK(graph.ends() == Ranks{3, 7});
  CHECK(graph.circle() == Ranks{});
  CHECK(graph.reachable_from(1).ends() == Ranks{7});
  CHECK(graph.reachable_from(1).waits().size() == 3);
  CHECK(graph.reachable_from(7).waits().empty());
  CHECK(graph_of({}).ends() == Ranks{});
}

TEST_CASE("a rank that waits in two groups leads to two ends") {
  const WaitGraph graph = graph_of({{0, 1}, {0, 2}, {2, 5}});
  CHECK(graph.reachable_from(0).ends() == Ranks{1, 5});
}

TEST_CASE("a circle begins with its lowest rank, without those that only wait for it") {
  const WaitGraph graph = graph_of({{0, 6}, {6, 3}, {3, 4}, {4, 6}});
  CHECK(graph.ends() == Ranks{});
  CHECK(graph.circle() == Ranks{3, 4, 6});
  CHECK(circle_in_words(graph.circle(), RankNames()) ==
        "Ranks wait for each other in a circle: rank 3 for rank 4, rank 4 for rank 6, rank 6 for "
        "rank 3");
}
