#include "parallel/grid.hpp"

namespace ringside::parallel {

using collectives::ProcessGroup;

// As a clock divides seconds: the last axis first, and what is left over belongs to those before.
std::vector<int> coordinates(const std::vector<int>& sizes, int rank) {
  std::vector<int> at(sizes.size());
  for (std::size_t axis = sizes.size(); axis-- > 0;) {
    at[axis] = rank % sizes[axis];
    rank /= sizes[axis];
  }
  return at;
}

int rank_at(const std::vector<int>& sizes, const std::vector<int>& coordinates) {
  int rank = 0;
  for (std::size_t axis = 0; axis < sizes.size(); ++axis)
    rank = rank * sizes[axis] + coordinates[axis];
  return rank;
}

std::vector<int> members(const std::vector<int>& sizes, int rank, std::size_t axis) {
  std::vector<int> at = coordinates(sizes, rank), ranks;
  for (int i = 0; i < sizes[axis]; ++i) {
    at[axis] = i;
    ranks.push_back(rank_at(sizes, at));
  }
  return ranks;
}

// The ranks of a group agree on its first member, and no other group has that member: so its rank
// is the color. The coordinate is the key.
//
//     sizes {2, 3}, along axis 1:    rank    0 1 2   3 4 5        along axis 0:    0 1 2 3 4 5
//                                    color   0 0 0   3 3 3                         0 1 2 0 1 2
//                                    key     0 1 2   0 1 2                         0 0 0 1 1 1
ProcessGroup group_along(const std::vector<int>& sizes, std::size_t axis, ProcessGroup& world) {
  const int color = members(sizes, world.rank(), axis).front();
  const int key = coordinates(sizes, world.rank())[axis];
  return world.split(color, key);
}

}  // namespace ringside::parallel
