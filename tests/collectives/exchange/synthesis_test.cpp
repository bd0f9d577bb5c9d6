// Synthesis: the rows of SCCL's table that the paper names, and small networks where the answer can
// be counted by hand.

#include "collectives/exchange/synthesis.hpp"

#include <cstdlib>
#include <numeric>

#include <dlfcn.h>
#include <doctest/doctest.h>

#include "base/error.hpp"
#include "collectives/exchange/pack_messages.hpp"
#include "collectives/proof/verify.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using tests::contains;

namespace {

bool z3_is_here() {
  static const bool here = ::dlopen("libz3.so.4", RTLD_LAZY) != nullptr;
  if (!here) MESSAGE("SKIPPED: there is no Z3 on this machine");
  return here;
}

Synthesis ask(Collective collective, const std::string& network, int size, int chunks, int steps,
              int rounds, int root = 0) {
  return synthesize({collective, root, chunks, steps, rounds, Seconds(60)},
                    network_named(network, size));
}

// Proved, over links of the network only, and within the rounds.
void check_found(const Synthesis& synthesis, const std::string& name, int size, int rounds) {
  REQUIRE(synthesis.answer == Answer::found);
  const CaseOfFile& algorithm = synthesis.algorithm;
  CHECK(verify(algorithm.collective, algorithm.schedules, algorithm.root).empty());
  CHECK(std::accumulate(synthesis.rounds.begin(), synthesis.rounds.end(), 0) <= rounds);
  const Network network = network_named(name, size);
  for (int rank = 0; rank < network.size; ++rank)
    for (const Step& step : algorithm.schedules[rank].steps) {
      const auto is_link = [&](const Network::Edge& edge) {
        return !step.send || (edge.from == rank && edge.to == step.send->to);
      };
      CHECK(std::any_of(network.edges.begin(), network.edges.end(), is_link));
    }
}

}  // namespace

TEST_CASE("SCCL's rows: all-gather on a DGX-1 in the fewest steps, and with the fewest bytes") {
  if (!z3_is_here()) return;
  const Network dgx1 = network_named("dgx1", 0);
  for (int node = 0; node < 8; ++node) {
    int links = 0;
    for (const Network::Edge& edge : dgx1.edges) links += edge.from == node ? edge.width : 0;
    CHECK(links == 6);
  }
  const Synthesis none = ask(Collective::all_gather, "dgx1", 8, 1, 1, 1);
  CHECK(none.answer == Answer::none);
  CHECK(none.why == "Counting proves it: rank 0 must receive 7 chunks, and its links carry 6");
  CHECK(ask(Collective::all_gather, "dgx1", 8, 1, 1, 2).answer ==
        Answer::none);  // not all adjacent
  check_found(ask(Collective::all_gather, "dgx1", 8, 1, 2, 2), "dgx1", 8, 2);
  check_found(ask(Collective::all_gather, "dgx1", 8, 6, 3, 7), "dgx1", 8, 7);
  CHECK(ask(Collective::all_gather, "dgx1", 8, 6, 3, 6).why ==
        "Counting proves it: rank 0 must receive 42 chunks, and its links carry 36");
}

TEST_CASE("SCCL's rows: all-gather on a bidirectional ring of four") {
  if (!z3_is_here()) return;
  check_found(ask(Collective::all_gather, "ring", 4, 1, 2, 2), "ring", 4, 2);
  const Synthesis best = ask(Collective::all_gather, "ring", 4, 2, 2, 3);
  check_found(best, "ring", 4, 3);
  CHECK(best.rounds == std::vector<int>{1, 2});
  CHECK(best.algorithm.schedules[0].chunks == 8);
  CHECK(ask(Collective::all_gather, "ring", 4, 2, 2, 2).answer == Answer::none);
  CHECK(ask(Collective::all_gather, "ring", 4, 1, 1, 2).why == "Z3 proved it");
}

TEST_CASE("every collective that has an encoding is found and proved") {
  if (!z3_is_here()) return;
  for (const int size : {2, 3, 4}) {
    CAPTURE(size);
    for (const int root : {0, size - 1})
      for (const Collective collective :
           {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter})
        check_found(ask(collective, "line", size, 1, size - 1, 2 * size, root), "line", size,
                    2 * size);
    check_found(ask(Collective::reduce_scatter, "full", size, 2, 1, 2), "full", size, 2);
    check_found(ask(Collective::all_reduce, "full", size, 1, 2, 2), "full", size, 2);
    check_found(ask(Collective::all_reduce, "star", size, 1, 4, 2 * size), "star", size, 2 * size);
  }
  CHECK(ask(Collective::broadcast, "line", 4, 1, 2, 2).answer == Answer::none);
  CHECK(ask(Collective::broadcast, "line", 4, 1, 2, 2, 1).answer == Answer::found);
}

TEST_CASE("a question without sense, and one that takes too long, have a sentence") {
  if (!z3_is_here()) return;
  CHECK_THROWS_WITH_AS(ask(Collective::all_to_all, "ring", 4, 1, 2, 2),
                       "there is no synthesis of all_to_all: choose all_gather, broadcast, gather, "
                       "scatter, reduce_scatter, reduce or all_reduce",
                       Error);
  CHECK_THROWS_WITH_AS(ask(Collective::all_reduce, "ring", 4, 1, 3, 4),
                       "an all_reduce is a reduce_scatter and an all_gather: expected an even "
                       "number of steps and of rounds, not 3 and 4",
                       Error);
  CHECK_THROWS_WITH_AS(network_named("dgx1", 4),
                       "the network dgx1 has 8 nodes, not 4: leave out -n", Error);
  CHECK_THROWS_WITH_AS(
      network_named("torus", 4),
      "there is no network 'torus': choose ring, line, star, full, dgx1 or a JSON file", Error);
  CHECK(synthesize({Collective::all_gather, 0, 11, 3, 13, Seconds(0.05)}, network_named("dgx1", 8))
            .answer == Answer::out_of_time);
}

TEST_CASE("messages are packed into steps that keep their order") {
  // Rank 1 sends on what it received, and is overwritten only after that.
  const auto schedules = pack_messages(3, 2,
                                       {{0, 1, {0}, Action::overwrite},
                                        {0, 2, {1}, Action::overwrite},
                                        {1, 2, {0}, Action::add},
                                        {2, 1, {0, 2}, Action::overwrite}});
  REQUIRE(schedules[0].steps.size() == 4);
  CHECK(schedules[0].steps[0].send == Send{1, {0}});
  CHECK(schedules[0].steps[1].send == Send{2, {1}});
  CHECK(schedules[1].steps[1].send == std::nullopt);  // rank 2 receives from rank 0 in that step
  CHECK(schedules[1].steps[2].send == Send{2, {0}});
  CHECK(schedules[2].steps[2].receive == Receive{1, {0}, Action::add});
  CHECK(schedules[2].steps[3].send == Send{1, {0, 2}});  // after it has received chunk 0
}
