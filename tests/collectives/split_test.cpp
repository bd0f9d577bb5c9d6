// Sub-groups: their members, and their use side by side.
#include <filesystem>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include "base/environment.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/messages.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

// The members of the group, by their ranks in the world.
std::vector<int> members(ProcessGroup& group, int world_rank) {
  std::vector<std::int32_t> all(group.size());
  const std::int32_t mine = world_rank;
  group.all_gather(std::span(&mine, 1), std::span(all));
  return {all.begin(), all.end()};
}

void require_members(ProcessGroup& group, int world_rank, const std::vector<int>& wanted) {
  const auto seen = members(group, world_rank);
  require(seen == wanted, "the group of rank {} is {} instead of {}", world_rank,
          fmt::join(seen, " "), fmt::join(wanted, " "));
  require(wanted[group.rank()] == world_rank, "rank {} is number {} there", world_rank,
          group.rank());
}

float sum_in(ProcessGroup& group, float mine, std::size_t count = 1000) {
  std::vector<float> x(count, mine);
  group.all_reduce(std::span(x));
  for (const float each : x) require(each == x[0], "{} and {} in one sum", each, x[0]);
  return x[0];
}

}  // namespace

TEST_CASE("ranks of one color form a group, in the order of their keys") {
  for (const int size : {1, 2, 3, 4, 6})
    on_every_transport(size, [](ProcessGroup& world) {
      const int rank = world.rank(), n = world.size();
      ProcessGroup parity = world.split(rank % 2);
      std::vector<int> alike;
      for (int r = rank % 2; r < n; r += 2) alike.push_back(r);
      require_members(parity, rank, alike);

      ProcessGroup backwards = world.split(7, n - rank);
      std::vector<int> all(n);
      std::iota(all.rbegin(), all.rend(), 0);
      require_members(backwards, rank, all);

      ProcessGroup alone = world.split(-rank);
      require(alone.size() == 1 && sum_in(alone, 3) == 3, "the group of one rank is wrong");
      require(sum_in(world, 1) == static_cast<float>(n), "the sum of the world is wrong");
    });
}

TEST_CASE("rows and columns of a mesh work at the same time") {
  on_every_transport(6, [](ProcessGroup& world) {
    const int columns = 3, row = world.rank() / columns, column = world.rank() % columns;
    ProcessGroup along_row = world.split(row), along_column = world.split(column);
    require(along_row.size() == 3 && along_row.rank() == column, "a row of {}", along_row.size());
    require(along_column.size() == 2 && along_column.rank() == row, "a column of {}",
            along_column.size());
    std::vector<float> in_row(200000, static_cast<float>(world.rank()));
    for (int round = 0; round < 3; ++round) {
      const Work work = along_row.all_reduce_async(std::span(in_row), ReduceOp::avg);
      require(sum_in(along_column, static_cast<float>(world.rank()), 50000) ==
                  static_cast<float>(2 * column + 3),
              "a column's sum");
      require(sum_in(world, 1) == 6, "the world's sum");
      work.wait();
      require(in_row[0] == static_cast<float>(3 * row + 1) && in_row.back() == in_row[0],
              "a row's mean is {}", in_row[0]);
    }
  });
}

TEST_CASE("a sub-group can be divided again and outlives its parent") {
  on_every_transport(4, [](ProcessGroup& world) {
    const auto quarter = [&] {
      ProcessGroup half = world.split(world.rank() / 2);
      return half.split(half.rank());
    };
    ProcessGroup pair = [&] {
      ProcessGroup all = world.split(0);
      return all.split(all.rank() / 2);
    }();
    ProcessGroup single = quarter();
    require(sum_in(pair, 1) == 2 && sum_in(single, 1) == 1, "groups whose parents are gone");
    require_members(pair, world.rank(), {world.rank() / 2 * 2, world.rank() / 2 * 2 + 1});
    world.barrier();
  });
}

TEST_CASE("sub-groups use the algorithms that are forced in their parent") {
  GroupOptions options;
  options.algorithms = AlgorithmSelection("all_reduce=recursive_doubling");
  const auto outcomes = run_tcp(
      4,
      [](ProcessGroup& world) {
        ProcessGroup pair = world.split(world.rank() / 2);
        std::vector<float> x(pair.rank() == 0 ? 10 : 20);
        pair.all_reduce(std::span(x));
      },
      options);
  for (const auto& text : outcomes)
    CHECK(contains(text, "all_reduce of 10 fp32 (sum, recursive_doubling)"));
}

TEST_CASE("what a sub-group says names ranks by their numbers in the job") {
  GroupOptions options;
  options.executor.timeout = Seconds(1);
  const auto body = [](ProcessGroup& world) {
    ProcessGroup half = world.split(world.rank() / 2), pair = half.split(0);
    if (world.rank() != 3) sum_in(pair, 1);
    if (world.rank() == 3) std::this_thread::sleep_for(std::chrono::seconds(4));
  };
  for (const auto& outcomes : {run_tcp(4, body, options), run_shm(4, body, options)}) {
    CAPTURE(outcomes[2]);
    CHECK(outcomes[2].starts_with(
        "rank 3 does not answer: stopped, stuck, or busy outside of this sub-group; nothing came "
        "to rank 2 from rank 3 for 1.0 s"));
    CHECK(contains(outcomes[2],
                   "[rank 2 was in call #1 of sub-group split1.color1.split1.color0 (ranks 2,3 of "
                   "the job)"));
  }
}

TEST_CASE("on a mesh a rank is named by its number in the job and its coordinates") {
  GroupOptions options;
  options.executor.timeout = Seconds(1);
  // What each rank of a column does: the columns of "dp=2,tp=2" are the ranks 0, 2 and 1, 3.
  const auto in_column = [&](auto act) {
    return [act](ProcessGroup& world) {
      world.set_mesh("dp=2,tp=2");
      ProcessGroup column = world.split(world.rank() % 2);
      std::vector<float> x(1000);
      act(world.rank(), column, std::span(x));
    };
  };
  const auto over_both = [&](const Body& body, auto check) {
    for (const auto& outcomes : {run_tcp(4, body, options), run_shm(4, body, options)}) {
      CAPTURE(outcomes[1]);
      check(outcomes);
    }
  };
  const auto silent = [](int rank, ProcessGroup& column, std::span<float> x) {
    if (rank != 3) column.all_reduce(x);
    if (rank == 3) std::this_thread::sleep_for(std::chrono::seconds(3));
  };
  over_both(in_column(silent), [](const auto& outcomes) {
    CHECK(outcomes[1].starts_with(
        "rank 3 (dp=1,tp=1) does not answer: stopped, stuck, or busy outside of this sub-group; "
        "nothing came to rank 1 (dp=0,tp=1) from rank 3 (dp=1,tp=1) for 1.0 s [rank 1 (dp=0,tp=1) "
        "was in call #1 of sub-group split1.color1 (ranks 1,3 of the job), all_reduce of"));
    CHECK(outcomes[0] == "");
  });
  const auto different = [](int rank, ProcessGroup& column, std::span<float> x) {
    column.all_reduce(rank == 3 ? x.first(500) : x);
  };
  over_both(in_column(different), [](const auto& outcomes) {
    CHECK(contains(outcomes[1], "the ranks disagree: rank "));
    CHECK(contains(outcomes[1], "rank 1 (dp=0,tp=1) makes call #1, all_reduce of 1000 fp32"));
    CHECK(contains(outcomes[1], "rank 3 (dp=1,tp=1) makes call #1, all_reduce of 500 fp32"));
    CHECK(outcomes[2] == "");
  });
  const auto alone = [](int rank, ProcessGroup& column, std::span<float> x) {
    if (rank == 1) column.recv(x, 1, "activation");
    if (rank == 3) column.abort("rank 3 has had enough");
  };
  over_both(in_column(alone), [](const auto& outcomes) {
    CHECK(contains(outcomes[1], "rank 3 has had enough (as rank 3 (dp=1,tp=1) tells)"));
    CHECK(contains(outcomes[1],
                   "send/recv of 1000 fp32 from rank 3 (dp=1,tp=1) to rank 1 (dp=0,tp=1) for "
                   "activation"));
  });
}

namespace {

// What each rank says, over threads, tcp and shm.
void over_all(int size, const Body& body, const GroupOptions& options, auto check) {
  check(on_threads(size, [&, world = make_threads_world(size)](int rank) {
    ProcessGroup group(make_schedule_backend(connect_threads(world, rank), options.executor));
    body(group);
  }));
  for (const auto& run : {run_tcp, run_shm}) check(run(size, body, options));
}

GroupOptions patience_of(double seconds) {
  GroupOptions options;
  options.executor.timeout = Seconds(seconds);
  options.executor.warn_after = Seconds(0);
  return options;
}

}  // namespace

TEST_CASE("waits are followed from group to group, to the rank that does not answer") {
  // In rows and columns of "dp=2,tp=2": 1 -> 0 -> 2 -> 3, and rank 3 sleeps. The world is gone, so
  // only ranks on the way can tell rank 1 of rank 3.
  const auto body = [](ProcessGroup& world) {
    const int rank = world.rank();
    world.set_mesh("dp=2,tp=2");
    ProcessGroup row = world.split(rank / 2), column = world.split(rank % 2);
    { const ProcessGroup gone = std::move(world); }
    std::vector<float> x(1);
    if (rank == 1) row.recv(std::span(x), 0);
    if (rank == 0) column.recv(std::span(x), 1);
    if (rank == 2) row.recv(std::span(x), 1);
    std::this_thread::sleep_for(std::chrono::seconds(5));
  };
  over_all(4, body, patience_of(2), [](const auto& outcomes) {
    for (const int rank : {0, 1, 2}) {
      CAPTURE(outcomes[rank]);
      CHECK(outcomes[rank].starts_with(
          "rank 3 (dp=1,tp=1) does not answer: stopped, stuck, or busy "));
    }
    CHECK(contains(outcomes[1], "rank 2 (dp=1,tp=0) waits for rank 3 (dp=1,tp=1) in another "));
    CHECK(outcomes[3] == "");
  });
}

TEST_CASE("waits are followed from messages into a group") {
  const auto body = [](ProcessGroup& world) {
    const int rank = world.rank();
    ProcessGroup pair = world.split(rank == 0 ? 0 : 1);
    Messages messages(world);
    std::vector<float> x(1);
    if (rank == 0) messages.recv(std::span(x), 1).wait();
    if (rank == 1) pair.recv(std::span(x), 1);
    std::this_thread::sleep_for(std::chrono::seconds(5));
  };
  over_all(3, body, patience_of(2), [](const auto& outcomes) {
    for (const int rank : {0, 1}) {
      CAPTURE(outcomes[rank]);
      CHECK(outcomes[rank].starts_with("rank 2 does not answer: stopped, stuck, or busy "));
    }
  });
}

TEST_CASE("a circle of waits through several groups is said as such") {
  for (const int size : {2, 3}) {
    // Each rank waits for the next one in a group of its own.
    const auto body = [](ProcessGroup& world) {
      std::vector<ProcessGroup> groups;
      for (int r = 0; r < world.size(); ++r) groups.push_back(world.split(0));
      std::vector<float> x(1);
      groups[static_cast<std::size_t>(world.rank())].recv(std::span(x),
                                                          (world.rank() + 1) % world.size());
    };
    over_all(size, body, patience_of(2), [&](const auto& outcomes) {
      const char* const circle =
          size == 2
              ? "Ranks wait for each other in a circle: rank 0 for rank 1, rank 1 for rank 0; "
              : "Ranks wait for each other in a circle: rank 0 for rank 1, rank 1 for rank "
                "2, rank 2 for rank 0; nothing came to rank ";
      for (const std::string& text : outcomes) {
        CAPTURE(text);
        CHECK(text.starts_with(circle));
      }
    });
  }
}

TEST_CASE("a rank that left after a failure in another group has told the first cause") {
  const auto body = [](ProcessGroup& world) {
    const int rank = world.rank();
    ProcessGroup low = world.split(rank < 2 ? 0 : 1), high = world.split(rank > 0 ? 0 : 1);
    const ProcessGroup gone = std::move(world);
    std::vector<float> x(1);
    if (rank == 0) low.recv(std::span(x), 1);
    if (rank == 1) high.recv(std::span(x), 1);
    if (rank == 2) high.abort("the disk of rank 2 is full");
  };
  over_all(3, body, patience_of(2), [](const auto& outcomes) {
    CAPTURE(outcomes[0]);
    CHECK(outcomes[0].starts_with("the disk of rank 2 is full (as rank 1 tells) [rank 0 was in"));
    CHECK(outcomes[1].starts_with("the disk of rank 2 is full (as rank 2 tells) [rank 1 was in"));
  });
}

TEST_CASE("a failure names its sub-group and leaves other sub-groups alone") {
  GroupOptions options;
  options.executor.timeout = Seconds(20);
  const auto body = [](ProcessGroup& world) {
    ProcessGroup half = world.split(world.rank() % 2);
    if (world.rank() == 1) half.abort("rank 1 has had enough");
    if (world.rank() % 2 == 0) require(sum_in(half, 1) == 2, "the other half");
    if (world.rank() == 3) sum_in(half, 1);
  };
  for (const auto& outcomes : {run_tcp(4, body, options), run_shm(4, body, options)}) {
    CHECK(outcomes[0] == "");
    CHECK(outcomes[2] == "");
    CHECK(contains(outcomes[3],
                   "rank 1 has had enough (as rank 1 tells) [rank 3 was in call #1 of sub-group "
                   "split1.color1 (ranks 1,3 of the job), all_reduce of"));
  }
}

TEST_CASE("a sub-group waits for a missing member until connect_timeout") {
  const auto port = free_port();
  const auto outcomes = on_threads(3, [&](int rank) {
    RankInfo rank_info = rank_info_of(rank, 3, port);
    rank_info.connect_timeout = Seconds(3);
    ProcessGroup group = ProcessGroup::over("tcp", rank_info, {});
    if (rank != 2) return void(group.split(0));
    // What split() does until this rank has sent its endpoint.
    struct {
      std::int32_t color = 0, key = 0;
      Endpoint endpoint{};
    } bid;
    std::vector<std::byte> bids(3 * sizeof bid);
    group.all_gather({&bid, sizeof bid, DataType::uint8},
                     {bids.data(), bids.size(), DataType::uint8}, "split");
    std::this_thread::sleep_for(std::chrono::milliseconds(3500));
  });
  // The first whose time is over tells the other.
  for (const int rank : {0, 1}) {
    CAPTURE(outcomes[rank]);
    CHECK(contains(outcomes[rank], "rank 2 came, but did not connect to rank "));
    CHECK(contains(outcomes[rank], " within 3 s"));
  }
}

TEST_CASE("a member that gives up while a sub-group connects ends the wait of the others") {
  for (const char* backend : {"tcp", "shm"}) {
    CAPTURE(backend);
    const auto port = free_port();
    const auto outcomes = on_threads(4, [&](int rank) {
      ProcessGroup group = ProcessGroup::over(backend, rank_info_of(rank, 4, port), {});
      if (rank != 3) return void(group.split(0));
      struct {
        std::int32_t color = 0, key = 0;
        Endpoint endpoint{};
      } bid;
      std::vector<std::byte> bids(4 * sizeof bid);
      group.all_gather({&bid, sizeof bid, DataType::uint8},
                       {bids.data(), bids.size(), DataType::uint8}, "split");
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      group.abort("rank 3 has no more memory");
    });
    for (const int rank : {0, 1, 2}) {
      CAPTURE(outcomes[rank]);
      CHECK(contains(outcomes[rank], "rank 3 has no more memory (as rank "));
    }
  }
}

TEST_CASE("ranks of one host share memory by default") {
  const auto port = free_port();
  const auto outcomes = on_threads(3, [&](int rank) {
    ProcessGroup group = ProcessGroup::over("auto", rank_info_of(rank, 3, port), {});
    require(group.backend_name() == "shm", "the backend is {}", group.backend_name());
    ProcessGroup pair = group.split(rank / 2);
    require(pair.backend_name() == (rank < 2 ? "shm" : "tcp"), "of {} ranks the backend is {}",
            pair.size(), pair.backend_name());
    require(sum_in(pair, 1) == static_cast<float>(pair.size()), "a sum");
  });
  for (const auto& outcome : outcomes) CHECK(outcome == "");
  CHECK_THROWS_WITH_AS(
      ProcessGroup::over("carrier pigeon", RankInfo{}, {}),
      "there is no backend 'carrier pigeon' to connect ranks with: take auto, tcp or shm", Error);
}
