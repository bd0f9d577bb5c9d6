// What is known of a row of logits of which this rank has some columns
// (ops/losses/divided_losses.hpp).
#pragma once

#include <cstdint>

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// A target as this rank sees it: 0 .. V_r - 1 is a column here, V_r stands for a column of another
// rank, and `ignored_here` for an ignored token.
constexpr std::int32_t ignored_here = -1;

// For each row of logits, on the CPU, in the dtype of the logits.
struct RowNumbers {
  Tensor largest;  // [rows]
  Tensor sums;     // [2, rows]: the total of exp(z - largest), then z[target] or 0
};

}  // namespace ringside::autograd
