// Region: a box inside a whole tensor, and the tensor of its elements. A rank that holds a part of
// a matrix holds such a tensor.
//
//     whole [4, 6]                      region: begin [0, 2], extent [4, 3]
//     . . x x x .
//     . . x x x .      runs             elements 2-4, 8-10, 14-16 and 20-22 of the whole:
//     . . x x x .                       one run of neighbours for each row
//     . . x x x .
//
// A region of whole rows is a single run.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

struct Region {
  Shape whole;          // the shape of the whole tensor
  Shape begin, extent;  // of each dimension

  // Everything, and rows (or columns) begin .. begin + count of one dimension. Throws Error if
  // `count` is negative or the range does not lie in the tensor.
  static Region all(Shape whole);
  static Region range(Shape whole, int dimension, std::int64_t begin, std::int64_t count);

  std::int64_t elements() const { return elements_of(extent); }

  // Elements that are neighbours in both tensors: `count` of them, from element `in_whole` of the
  // whole and element `in_part` of the part, both in row-major order.
  struct Run {
    std::int64_t in_whole = 0, in_part = 0, count = 0;
  };
  std::vector<Run> runs() const;

  // A view, of shape `extent`, of a tensor of shape `whole`. Copying in is
  // `region.of(whole).copy_(part)`, copying out is `part.copy_(region.of(whole))`.
  Tensor of(const Tensor& whole_tensor) const;
};

}  // namespace ringside::autograd
