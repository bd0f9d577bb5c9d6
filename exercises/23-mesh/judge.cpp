// Judges a grid of ranks: its arithmetic on one process, and its groups between real ranks.
#include <cmath>
#include <functional>
#include <numeric>

#include "ddp/tensor_collectives.hpp"
#include "exercises/23-mesh/interface.hpp"
#include "exercises/judge/program.hpp"
#include "parallel/grid.hpp"

namespace ringside::exercises {
namespace {

using autograd::DType;
using autograd::Tensor;

// 2 x 2 hides exchanged axes; the others show them.
const std::vector<Sizes> grids = {{2, 2}, {2, 3}, {3, 2}, {2, 2, 2}, {1, 4}, {5}, {2, 3, 4}};

int ranks_of(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), 1, std::multiplies<>());
}

// "2 x 3"
std::string in_words(const Sizes& sizes) {
  return fmt::format("{}", fmt::join(sizes, " x "));
}

// "(1, 0)"
std::string list(const std::vector<int>& numbers) {
  return fmt::format("({})", fmt::join(numbers, ", "));
}

// [grid][rank]: its coordinates, the rank at its true coordinates, and its members along each axis.
Json collect_arithmetic(World&) {
  Json all = Json::array();
  for (const Sizes& sizes : grids) {
    Json& of_grid = all.emplace_back(Json::array());
    for (int rank = 0; rank < ranks_of(sizes); ++rank) {
      Json members = Json::array();
      for (std::size_t axis = 0; axis < sizes.size(); ++axis)
        members.push_back(student_members(sizes, rank, axis));
      of_grid.push_back({{"coordinates", student_coordinates(sizes, rank)},
                         {"rank_at", student_rank_at(sizes, parallel::coordinates(sizes, rank))},
                         {"members", members}});
    }
  }
  return all;
}

// The first fault of a rank of a grid, as "grid 2 x 3: ...".
Verdict first_fault_of_grids(
    const Run& run,
    const std::function<std::string(const Json& seen, const Sizes& sizes, int rank)>& fault) {
  for (std::size_t k = 0; k < grids.size(); ++k)
    for (int rank = 0; rank < ranks_of(grids[k]); ++rank) {
      const std::string found = fault(run.ranks[0].at(k).at(rank), grids[k], rank);
      if (!found.empty()) return {{fmt::format("grid {}: {}", in_words(grids[k]), found)}};
    }
  return {};
}

Verdict judge_coordinates(const Run& run) {
  return first_fault_of_grids(
      run, [](const Json& seen, const Sizes& sizes, int rank) -> std::string {
        const std::vector<int> at = seen.at("coordinates"),
                               expected = parallel::coordinates(sizes, rank);
        if (at != expected)
          return fmt::format(
              "rank {} has the coordinates {}, expected {}: the last axis varies fastest", rank,
              list(at), list(expected));
        if (seen.at("rank_at") != rank)
          return fmt::format("rank_at({}) is {}, expected {}", list(expected),
                             seen["rank_at"].get<int>(), rank);
        return "";
      });
}

Verdict judge_members(const Run& run) {
  return first_fault_of_grids(
      run, [](const Json& seen, const Sizes& sizes, int rank) -> std::string {
        for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
          const std::vector<int> ranks = seen.at("members").at(axis),
                                 expected = parallel::members(sizes, rank, axis);
          if (ranks != expected)
            return fmt::format("the members of rank {} along axis {} are {}, expected {}", rank,
                               axis, list(ranks), list(expected));
        }
        return "";
      });
}

// ---- The groups ----

// 4 = 2 x 2, 6 = 2 x 3, 8 = 2 x 2 x 2.
Sizes grid_of(int world) {
  return world == 8 ? Sizes{2, 2, 2} : Sizes{2, world / 2};
}

// For each axis the ranks of the world in the group, in the group's order.
Json collect_groups(World& world) {
  const Sizes sizes = grid_of(world.size());
  Json groups = Json::array();
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    world.doing(fmt::format("group_along axis {} of the grid {}", axis, in_words(sizes)));
    collectives::ProcessGroup group = student_group_along(sizes, axis, world.group());
    const Tensor mine = Tensor::full({1}, world.rank(), DType::fp64),
                 all = Tensor::empty({group.size()}, DType::fp64);
    ddp::all_gather(mine, all, group, "ranks of the group");
    groups.push_back(std::vector<int>(all.values<double>().begin(), all.values<double>().end()));
  }
  return groups;
}

Verdict judge_groups(const Run& run) {
  const Sizes sizes = grid_of(run.world);
  for (int rank = 0; rank < run.world; ++rank)
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
      const std::vector<int> seen = run.ranks[rank].at(axis),
                             expected = parallel::members(sizes, rank, axis);
      if (seen != expected)
        return {{fmt::format("grid {}: the group of rank {} along axis {} is {}, expected {}",
                             in_words(sizes), rank, axis, list(seen), list(expected))}};
    }
  return {};
}

// The sum along each axis in turn. Rank r contributes 10^r.
Json collect_sums(World& world) {
  const Sizes sizes = grid_of(world.size());
  const Tensor sum = Tensor::full({1}, std::pow(10, world.rank()), DType::fp64);
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    world.doing(fmt::format("the sum along axis {} of the grid {}", axis, in_words(sizes)));
    collectives::ProcessGroup group = student_group_along(sizes, axis, world.group());
    ddp::all_reduce_sum(sum, sum, group, "sum");
  }
  return sum.item();
}

Verdict judge_sums(const Run& run) {
  double expected = 0;
  for (int rank = 0; rank < run.world; ++rank) expected += std::pow(10, rank);
  for (int rank = 0; rank < run.world; ++rank)
    if (const double seen = run.ranks[rank]; seen != expected)
      return {
          {fmt::format("grid {}, rank {}: the sum along each axis in turn is {}, expected {}: "
                       "digit r from the right counts how often rank r was added",
                       in_words(grid_of(run.world)), rank, seen, expected)}};
  return {};
}

void by_program() {
  answer_by_program(student_coordinates, "coordinates");
  answer_by_program(student_rank_at, "rank_at");
  answer_by_program(student_members, "members");
  student_group_along.bind(
      [](const Sizes& sizes, std::size_t axis, collectives::ProcessGroup& world) {
        const auto [color, key] =
            answer_of_program<std::pair<int, int>>("group_along", sizes, axis, world.rank());
        return world.split(color, key);
      });
}

const Judge judge("23-mesh",
                  {{"coordinates", collect_arithmetic, judge_coordinates},
                   {"members", collect_arithmetic, judge_members},
                   {"groups", collect_groups, judge_groups},
                   {"sums", collect_sums, judge_sums}},
                  by_program);

}  // namespace
}  // namespace ringside::exercises
