// Jobs on a simulated network and clock: what must hold for every seed.
#include "tests/collectives/simulation/faults.hpp"

#include <algorithm>
#include <array>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/environment.hpp"
#include "tests/text.hpp"

namespace ringside::collectives {
namespace {

using tests::contains;

std::string in_words(const FaultyJob& job) {
  return fmt::format("seed {} ({}): {}. simulated_faults --seed {} replays it", job.seed,
                     fmt::join(job.faults, "; "), fmt::join(job.broken, "; "), job.seed);
}

}  // namespace

TEST_CASE("simulation: all that must hold holds for every seed") {
  const auto seeds = static_cast<std::uint64_t>(
      integer_environment("RINGSIDE_SEEDS", 1, 1'000'000'000).value_or(500));
  std::array<int, 9> of_size{};
  int well = 0, with_errors = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const FaultyJob job = simulate_faults(seed);
    CHECK_MESSAGE(job.broken.empty(), in_words(job));
    ++of_size[job.ranks];
    const bool all_well =
        std::ranges::all_of(job.ends, [](const std::string& end) { return end == "ended well"; });
    ++(all_well ? well : with_errors);
  }
  // The seeds reach what they are for.
  for (int ranks = 2; ranks <= 8; ++ranks) CHECK(of_size[ranks] > 0);
  CHECK(well > 0);
  CHECK(with_errors > 0);
}

// No rank is silent: the link between ranks 2 and 0 delivers nothing. Rank 1's time is over first.
TEST_CASE("simulation: where all ranks answer, the one furthest behind tells where the fault is") {
  const FaultyJob job = simulate_faults(1608);
  CHECK_MESSAGE(job.broken.empty(), in_words(job));
  for (const std::string& end : job.ends)
    CHECK(contains(end,
                   "nothing came to rank 0 from rank 2, and rank 0 is furthest behind; nothing "
                   "came to rank 1 from rank 0 for 5.0 s; rank 0 waits for rank 2 in step 1"));
}

// Rank 3 waits as well: rank 1, whose link to rank 6 delivers nothing, does not connect with it.
TEST_CASE("simulation: a rank that connects a sub-group is not silent") {
  const FaultyJob job = simulate_faults(71161);
  CHECK_MESSAGE(job.broken.empty(), in_words(job));
  for (const std::string& end : job.ends) CHECK(contains(end, "rank 3 connects with other ranks"));
}

// The link between ranks 2 and 4, which connect a sub-group, delivers nothing. Other ranks are in
// the next call, and their timeout is shorter.
TEST_CASE("simulation: a rank does not time out while one that connects holds it up") {
  const FaultyJob job = simulate_faults(6595);
  CHECK_MESSAGE(job.broken.empty(), in_words(job));
  for (const std::string& end : job.ends)
    CHECK(contains(end, "rank 2 has come and gone: it cannot be reached"));
}

// Rank 2, which is rank 1 of the sub-group, is stopped while it connects with rank 0.
TEST_CASE("simulation: where a sub-group cannot connect, ranks have their numbers in the job") {
  const FaultyJob job = simulate_faults(4060);
  CHECK_MESSAGE(job.broken.empty(), in_words(job));
  CHECK(contains(job.ends[0], "rank 2 came, but did not connect to rank 0 within 8 s"));
}

// The link between ranks 2 and 1 delivers nothing. Rank 0 has made this call and is in one of a
// sub-group, so it is silent, but nobody waits for it.
TEST_CASE("simulation: a silent rank for which nobody waits is not blamed") {
  const FaultyJob job = simulate_faults(191007);
  CHECK_MESSAGE(job.broken.empty(), in_words(job));
  CHECK(contains(job.ends[3], "nothing came to rank 2 from rank 1, and rank 2 is furthest behind"));
}

// Rank 2 waits for rank 0 in a sub-group, and the link between ranks 2 and 3 delivers nothing: each
// rank answers.
TEST_CASE("simulation: a lost message between two groups is a circle of waits") {
  const FaultyJob job = simulate_faults(13573);
  CHECK_MESSAGE(job.broken.empty(), in_words(job));
  for (const std::string& end : job.ends)
    CHECK(contains(end,
                   "Ranks wait for each other in a circle: rank 0 for rank 3, rank 3 for rank 2, "
                   "rank 2 for rank 0; nothing came to rank 3 from rank 2 for 5.0 s"));
}

TEST_CASE("simulation: a seed replays to the last event") {
  for (const std::uint64_t seed : {1, 7, 30, 101}) {
    const FaultyJob first = simulate_faults(seed), again = simulate_faults(seed);
    REQUIRE(first.lines.size() == again.lines.size());
    for (std::size_t i = 0; i < first.lines.size(); ++i) {
      CHECK(first.lines[i].time == again.lines[i].time);
      CHECK(first.lines[i].who == again.lines[i].who);
      CHECK(first.lines[i].text == again.lines[i].text);
    }
    CHECK(first.ends == again.ends);
  }
}

TEST_CASE("simulation: whom an error blames") {
  const auto blamed = [](const char* sentence) { return ranks_blamed_in(sentence); };
  using Ranks = std::set<int>;
  CHECK(blamed("rank 2 is gone: its connection closed") == Ranks{2});
  CHECK(blamed("rank 0 refuses: ranks 2, 3 of 4 never came to 10.0.0.1:29500") == Ranks{2, 3});
  CHECK(blamed("ranks 0 to 2 do not answer: stopped") == Ranks{0, 1, 2});
  CHECK(blamed("ranks 0, 2 and 5 do not answer: stopped") == Ranks{0, 2, 5});
  CHECK(blamed("nothing came to rank 1 from rank 3 for 5.0 s; rank 0 waits") == Ranks{3});
  CHECK(blamed("the connection to rank 4 broke: Broken pipe") == Ranks{4});
  CHECK(blamed("what listens at 10.0.0.1:29500 did not prove to rank 5 that it has the key of this "
               "job: it is not rank 0, or it has another RINGSIDE_JOB_KEY") == Ranks{0});
  CHECK(
      blamed("Ranks wait for each other in a circle: rank 0 for rank 3, rank 3 for rank 0; nothing "
             "came to rank 0 from rank 5") == Ranks{0, 3});
  CHECK(blamed("out of memory").empty());
}

}  // namespace ringside::collectives
