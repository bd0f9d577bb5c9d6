#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <latch>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>
#include "autograd/kernels/threads/parallel.hpp"
#include "base/error.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

std::ptrdiff_t threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// What a rank does: a thread with so many threads for its loops.
void as_rank(int n_threads, const std::function<void()>& body) {
  std::thread([&] {
    set_threads(n_threads);
    body();
  }).join();
}

// How often a loop of so many pieces visits each.
std::vector<int> visits(int count) {
  std::vector<std::atomic<int>> counts(static_cast<std::size_t>(count));
  parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ++counts[static_cast<std::size_t>(i)];
  });
  return {counts.begin(), counts.end()};
}

}  // namespace

TEST_CASE("the pieces of a loop run at once, each on a thread of its own") {
  as_rank(4, [] {
    std::latch all_here(4);  // one thread for two pieces would never pass
    std::vector<std::thread::id> where(4);
    parallel_for_pieces(4, 1, [&](int piece, std::int64_t, std::int64_t) {
      where[static_cast<std::size_t>(piece)] = std::this_thread::get_id();
      all_here.arrive_and_wait();
    });
    CHECK(where[0] == std::this_thread::get_id());
    CHECK(std::set(where.begin(), where.end()).size() == 4);
  });
}

TEST_CASE("loops with more pieces and fewer, one after the other, visit each index once") {
  as_rank(1, [] {
    for (int round = 0; round < 200; ++round)
      for (const int n : {2, 8, 3, 1, 5}) {
        set_threads(n);
        for (const int count : {1, 7, 100}) {
          const std::vector<int> each = visits(count);
          REQUIRE(std::ranges::count(each, 1) == count);
        }
      }
  });
}

TEST_CASE("the threads are kept from loop to loop, and end with their rank") {
  const std::ptrdiff_t before = threads_of_process();
  as_rank(3, [&] {
    visits(3);
    const std::ptrdiff_t during = threads_of_process();
    CHECK(during == before + 3);  // the rank and two more
    for (int i = 0; i < 50; ++i) visits(3);
    CHECK(threads_of_process() == during);
  });
  CHECK(threads_of_process() == before);
}

TEST_CASE("an exception of any piece reaches the caller after all pieces are done") {
  as_rank(3, [] {
    for (const int failing : {0, 1, 2}) {
      std::atomic<int> done = 0;
      CHECK_THROWS_WITH_AS(
          parallel_for_pieces(3, 1,
                              [&](int piece, std::int64_t, std::int64_t) {
                                require(piece != failing, "piece {}", piece);
                                std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                ++done;
                              }),
          ("piece " + std::to_string(failing)).c_str(), Error);
      CHECK(done == 2);
      CHECK_FALSE(in_loop());
      CHECK(visits(3) == std::vector{1, 1, 1});  // nothing of the failure is left
    }
  });
}

TEST_CASE("a loop within a piece runs in one piece, on helpers too") {
  as_rank(3, [] {
    std::atomic<int> inner = 0, looping = 0;
    parallel_for_pieces(3, 1, [&](int, std::int64_t, std::int64_t) {
      looping += in_loop();
      parallel_for_pieces(100, 1, [&](int, std::int64_t, std::int64_t) { ++inner; });
    });
    CHECK(inner == 3);
    CHECK(looping == 3);
    CHECK_FALSE(in_loop());
  });
}

TEST_CASE("ranks of one process loop at the same time") {
  std::vector<std::thread> ranks;
  std::atomic<int> right = 0;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&] {
      set_threads(2);
      for (int i = 0; i < 300; ++i) right += visits(2) == std::vector{1, 1};
    });
  for (std::thread& rank : ranks) rank.join();
  CHECK(right == 4 * 300);
}

// ThreadSanitizer ends a child that starts a thread if its parent had several.
#ifndef __SANITIZE_THREAD__
TEST_CASE("a child made by fork() has threads of its own, and ends") {
  set_threads(2);
  visits(2);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);  // the helpers of the parent are not here: waiting for one would never end
    const bool right = visits(2) == std::vector{1, 1};
    std::exit(right ? 0 : 1);  // not _exit: what the thread owns is destroyed
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(visits(2) == std::vector{1, 1});
  set_threads(1);
}
#endif
