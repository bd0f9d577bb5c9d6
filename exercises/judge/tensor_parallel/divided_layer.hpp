// A linear layer that is divided over ranks, and its gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "autograd/tensor/tensor.hpp"

namespace ringside::exercises {

// A layer y = x W^T + b, and the gradient dy that comes back to it. `in` and `out` are no multiples
// of the ranks.
struct DividedLayer {
  DividedLayer(int ranks, bool column, bool with_bias, std::uint64_t seed);
  std::string name() const { return column ? "column_linear" : "row_linear"; }
  bool column;
  std::int64_t in, out;
  autograd::Tensor x, weight, bias, dy;
};

struct LayerResults {
  autograd::Tensor y, dx, dW, db;
};

// y of one rank, or of a single process (ranks 1), and its gradients after backward(dy).
LayerResults run_layer(
    const DividedLayer& layer, int ranks, int rank,
    const std::function<autograd::Tensor(const autograd::Tensor& x, const autograd::Tensor& weight,
                                         const autograd::Tensor& bias)>& forward);

}  // namespace ringside::exercises
