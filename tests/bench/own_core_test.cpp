// Where the ranks of a benchmark run when they outnumber the cores.
#include "bench/own_core.hpp"

#include <map>

#include <doctest/doctest.h>

using namespace ringside::cli;

namespace {

cpu_set_t allowed() {
  cpu_set_t cores;
  REQUIRE(::sched_getaffinity(0, sizeof cores, &cores) == 0);
  return cores;
}

}  // namespace

TEST_CASE("ranks that outnumber the cores are bound to them in equal numbers, for a while") {
  const cpu_set_t before = allowed();
  const int cores = CPU_COUNT(&before), ranks = 3 * cores;
  std::map<int, int> ranks_on;
  for (int rank = 0; rank < ranks; ++rank) {
    const OwnCore core(rank, ranks);
    const cpu_set_t own = allowed();
    CHECK(CPU_COUNT(&own) == 1);
    const int on = ::sched_getcpu();
    CHECK(CPU_ISSET(on, &own));
    CHECK(CPU_ISSET(on, &before));
    ++ranks_on[on];
  }
  CHECK(static_cast<int>(ranks_on.size()) == cores);
  for (const auto& [core, count] : ranks_on) CHECK(count == 3);
  const cpu_set_t after = allowed();
  CHECK(CPU_EQUAL(&after, &before));
}

TEST_CASE("ranks with a core each run where the system likes") {
  const cpu_set_t before = allowed();
  const OwnCore core(0, CPU_COUNT(&before));
  const cpu_set_t now = allowed();
  CHECK(CPU_EQUAL(&now, &before));
}
