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

// The ways to divide the work of training: the layers, the batch, the batch and the parameters, the
// matrices. The table in mesh_shape.cpp says of each how it is called and who knows it: a new axis
// is one name here and one line there.
enum class Axis { pp, dp, fsdp, tp };

std::string_view name_of(Axis axis);  // "pp", "dp", "fsdp", "tp"

// Which axes a text may name: those that the trainer divides by, or all that planning knows.
enum class Axes { trained, planned };
std::vector<Axis> axes_of(Axes known);  // from the first of the enumeration to the last

class MeshShape {
 public:
  MeshShape() = default;  // one rank, and no axes

  // Reads "pp=2,dp=2,tp=2". The order is the user's: the first axis varies slowest over the ranks,
  // and the last one fastest. So the ranks of the last axis are neighbours, usually of one host;
  // tp, which communicates most, belongs there. An axis that is not named has size 1.
  // Throws Error for an unknown axis, an axis named twice, and a size that is not a whole number
  // from 1 to a million. The sentence begins with `option`.
  explicit MeshShape(std::string_view text, Axes known = Axes::trained,
                     std::string_view option = "--mesh");

  // The same mesh with another size of `axis`. An axis that it does not name becomes the first.
  MeshShape with(Axis axis, int size) const;

  // Throws Error unless the mesh has exactly this many ranks.
  void require_ranks(int ranks) const;

  int ranks() const;  // the product of all sizes
  int size(Axis axis) const;
  int data_ranks() const { return size(Axis::dp) * size(Axis::fsdp); }
  // From a rank to the next one along `axis`: the product of the sizes after it.
  int stride(Axis axis) const;
  std::vector<Axis> axes() const;  // as the user named them

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

  std::string text() const;              // "pp=2,dp=2,tp=2", or "one device" without axes
  std::string describe(int rank) const;  // "pp=1,dp=0,tp=1": the coordinates in the same order

  bool operator==(const MeshShape&) const = default;

 private:
  struct Extent {
    Axis axis;
    int size;
    bool operator==(const Extent&) const = default;
  };
  std::vector<Extent> extents_;  // as the user named them
};

}  // namespace ringside::parallel
