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
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ringside::parallel {

// The ways to divide the work of training. All that is particular to one of them is a line of the
// table in mesh_shape.cpp: a new axis is one name here and one line there.
enum class Axis { pp, dp, fsdp, cp, tp, ep };

enum class Divides { layers, batch, sequence, matrices, experts };

struct AxisEntry {
  Axis axis;
  std::string_view name;       // "tp"
  std::string_view meaning;    // "tensor parallel"
  Divides divides;             // what each of its ranks has a part of
  std::string_view part;       // the same in words: "heads and columns of the matrices"
  std::string_view calls;      // what its ranks call in a step
  std::string_view gradients;  // how the gradients of its ranks come together

  // Whether its ranks hold different parameters. The ranks of the other axes hold the same ones
  // and see different tokens, so the mean over them is the gradient.
  bool divides_model() const {
    return divides == Divides::layers || divides == Divides::matrices ||
           divides == Divides::experts;
  }
  // Whether its ranks draw different sequences. Those that divide the experts do both: they see
  // different tokens, and exchange them at each mixture of experts.
  bool divides_batch() const { return divides == Divides::batch || divides == Divides::experts; }
};

// From the first of the enumeration to the last.
std::span<const AxisEntry> all_axes();
const AxisEntry& entry_of(Axis axis);
inline std::string_view name_of(Axis axis) {
  return entry_of(axis).name;
}

class MeshShape {
 public:
  MeshShape() = default;  // one rank, and no axes

  // Reads "pp=2,dp=2,tp=2". The order is the user's: the first axis varies slowest over the ranks,
  // and the last one fastest. So the ranks of the last axis are neighbours, usually of one host;
  // tp, which communicates most, belongs there. An axis that is not named has size 1.
  // Throws Error for an unknown axis, an axis named twice, and a size that is not a whole number
  // from 1 to a million. The sentence begins with `option`.
  explicit MeshShape(std::string_view text, std::string_view option = "--mesh");

  // The same mesh with another size of `axis`. An axis that it does not name becomes the first.
  MeshShape with(Axis axis, int size) const;

  // Throws Error unless the mesh has exactly this many ranks.
  void require_ranks(int ranks) const;

  int ranks() const;  // the product of all sizes
  int size(Axis axis) const;
  int size(Divides what) const;  // the product of the axes that divide it
  int data_ranks() const { return size(Divides::batch) * size(Divides::experts); }
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

  // The ranks that differ from `rank` along these axes only, itself included, in ascending order.
  std::vector<int> members(int rank, std::span<const Axis> along) const;
  // Those that hold one model together: they differ along the axes that divide it.
  std::vector<int> model_members(int rank) const;

  // Which of the data_ranks() shares of a batch `rank` draws.
  int data_rank(int rank) const;

  std::string text() const;              // "pp=2,dp=2,tp=2", or "one device" without axes
  std::string describe(int rank) const;  // "pp=1,dp=0,tp=1": the coordinates in the same order

  bool operator==(const MeshShape&) const = default;

 private:
  void require_rank(int rank) const;

  struct Extent {
    Axis axis;
    int size;
    bool operator==(const Extent&) const = default;
  };
  std::vector<Extent> extents_;  // as the user named them
};

}  // namespace ringside::parallel
