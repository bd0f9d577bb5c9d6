// Gloo behind the Backend seam, against plain sums. (MPI's ranks need mpirun; they are tested in
// tests/bench/collectives_test.cpp.)
#include <fmt/format.h>

#include "bench/backends/library_backends.hpp"

#include <numeric>

#include "tests/collectives/worlds.hpp"

using namespace ringside;
using namespace ringside::cli;
using namespace ringside::collectives;
using namespace ringside::tests;

namespace {

// Rank r's i-th number.
float number(int rank, std::size_t i) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 31 + i * 7) % 13);
}

std::vector<float> numbers(int rank, std::size_t begin, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = number(rank, begin + i);
  return values;
}

// doctest's CHECK is not thread-safe, so the body of a rank throws.
void must_equal(const std::vector<float>& seen, const std::vector<float>& wanted,
                const std::string& what) {
  require(seen == wanted, "{} gave {} instead of {}", what, fmt::join(seen, " "),
          fmt::join(wanted, " "));
}

// Checks every collective of the gloo backend with `count` elements.
void collectives_are_right(ProcessGroup& group, std::size_t count) {
  const int p = group.size(), r = group.rank(), root = p - 1;
  std::vector<float> sum(count, 0), largest(count, 0), all;
  for (int rank = 0; rank < p; ++rank) {
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] += number(rank, i);
      largest[i] = std::max(largest[i], number(rank, i));
    }
    const auto block = numbers(rank, group.block_begin(count, rank), group.block_size(count, rank));
    all.insert(all.end(), block.begin(), block.end());
  }
  const std::vector<float> mine = numbers(r, 0, count);
  std::vector<float> out(count, -1), in_place = mine;

  group.all_reduce(std::span(mine), std::span(out));
  must_equal(out, sum, "all_reduce");
  group.all_reduce(std::span(in_place), ReduceOp::max);
  must_equal(in_place, largest, "all_reduce in place, max");
  const auto block = numbers(r, group.block_begin(count, r), group.block_size(count, r));
  group.all_gather(std::span(block), std::span(out));
  must_equal(out, all, "all_gather");
  out = mine;
  group.broadcast(std::span(out), root);
  must_equal(out, numbers(root, 0, count), "broadcast");
  out.assign(count, -1);
  group.reduce(std::span(mine), std::span(out), root);
  must_equal(out, r == root ? sum : std::vector<float>(count, -1), "reduce");
  group.barrier();
}

}  // namespace

TEST_CASE("gloo gives the plain sums") {
  if (!gloo_is_here()) {
    MESSAGE("skipped: this build has no Gloo");
    return;
  }
  for (const int size : {1, 2, 3, 4}) {
    CAPTURE(size);
    const auto port = free_port();
    const auto outcomes = on_threads(size, [&](int rank) {
      ProcessGroup group(make_gloo_backend(rank_info_of(rank, size, port)));
      require(group.backend_name() == "gloo", "the backend is {}", group.backend_name());
      for (const std::size_t count : {0, 1, 3, 5, 1000}) collectives_are_right(group, count);
    });
    for (const auto& outcome : outcomes) CHECK(outcome == "");
  }
}

TEST_CASE("gloo cannot be split") {
  if (!gloo_is_here()) return;
  const auto port = free_port();
  const auto outcomes = on_threads(
      2, [&](int rank) { ProcessGroup(make_gloo_backend(rank_info_of(rank, 2, port))).split(0); });
  for (const auto& outcome : outcomes)
    CHECK(outcome == "the gloo backend cannot be split into sub-groups");
}

TEST_CASE("a collective that gloo lacks is an error that names it") {
  if (!gloo_is_here()) {
    CHECK_THROWS_WITH_AS(
        make_gloo_backend(RankInfo{}),
        "this build has no Gloo: install libgloo-dev, then configure and build again", Error);
    return;
  }
  const auto port = free_port();
  const auto outcomes = on_threads(2, [&](int rank) {
    ProcessGroup group(make_gloo_backend(rank_info_of(rank, 2, port)));
    std::vector<float> in(4), out(2);
    group.reduce_scatter(std::span(in), std::span(out));
  });
  for (const auto& outcome : outcomes)
    CHECK(outcome == "the gloo backend has no reduce_scatter; leave gloo out");
}

TEST_CASE("mpi without mpirun is an error that says so") {
  const char* expected =
      mpi_is_here()
          ? "the mpi backend needs processes that mpirun has started, and mpirun did not start "
            "this one"
          : "this build has no MPI: install libopenmpi-dev, then configure and build again";
  CHECK_THROWS_WITH_AS(make_mpi_backend(), expected, Error);
}
