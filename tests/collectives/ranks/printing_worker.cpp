// A program of run_ranks() for its tests: what each rank prints, and rank 1 fails if FAILS is set.
// The last rank is the first at each line.
#include <cstdlib>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "collectives/ranks/run_ranks.hpp"

using namespace ringside::collectives;

int main(int count, char** arguments) {
  return run_ranks(count, arguments, [](ProcessGroup& group, const RankPrinter& print) {
    group.barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(200 * (group.size() - 1 - group.rank())));
    const bool fails = std::getenv("FAILS") != nullptr && group.rank() == 1;
    ringside::require(!fails, "rank 1 has no data");
    print("rank {}{}\n", group.rank(), std::string(static_cast<std::size_t>(group.rank()), '!'));
    if (group.rank() == 1)
      print("only rank 1 has more to say,\nin two lines\n");
    else
      print("");
  });
}
