// MeshShape: how the ranks of a job are arranged in a grid, without any connection between them.
//
//     "dp=2,tp=3"              tp 0    tp 1    tp 2
//                     dp 0   rank 0  rank 1  rank 2        the last axis varies fastest
//                     dp 1   rank 3  rank 4  rank 5
//
//     members(4, Axis::tp) = 3 4 5        a row:    the ranks that share a matrix
//     members(4, Axis::dp) = 1 4          a column: the ranks that average gradients
//
// Planning and tests use a shape for ranks that do not exist; DeviceMesh (device_mesh.hpp) adds a
// process group for each row and column.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ringside::parallel {

// The ways to divide the work of training: the layers, the batch, the matrices.
enum class Axis { pp, dp, tp };

std::string_view name_of(Axis axis);  // "pp", "dp", "tp"

class MeshShape {
 public:
  // Reads "pp=2,dp=2,tp=2". The order is the user's: the first axis varies slowest over the ranks,
  // and the last one fastest. So the ranks of the last axis are neighbours, usually of one host;
  // tp, which communicates most, belongs there. An axis that is not named has size 1.
  // Throws Error for an unknown axis, an axis named twice, and a size that is not a whole number
  // from 1 to 16384.
  explicit MeshShape(std::string_view text);

  // Throws Error unless the mesh has exactly this many ranks.
  void require_ranks(int ranks) const;

  int ranks() const;  // the product of all sizes
  int size(Axis axis) const;

  // The grid (grid.hpp): 1, for the axes that are not named, then the sizes in the user's order.
  // index() says which of them belongs to `axis`.
  std::vector<int> sizes() const;
  std::size_t index(Axis axis) const;

  // Where `rank` stands along `axis`: 0 .. size(axis) - 1.
  int coordinate(int rank, Axis axis) const;

  // The ranks that differ from `rank` along `axis` only, itself included, in the order of their
  // coordinates.
  std::vector<int> members(int rank, Axis axis) const;

  // The ranks that hold one model together: those with the dp coordinate of `rank`, in ascending
  // order.
  std::vector<int> model_members(int rank) const;

  std::string text() const;              // "pp=2,dp=2,tp=2", in the user's order
  std::string describe(int rank) const;  // "pp=1,dp=0,tp=1": the coordinates in the same order

 private:
  struct Extent {
    Axis axis;
    int size;
  };
  std::vector<Extent> extents_;  // as the user named them
};

}  // namespace ringside::parallel
