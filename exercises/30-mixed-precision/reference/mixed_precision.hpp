// Mixed precision: sums, the scale of the loss, and the types of results.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "exercises/30-mixed-precision/precision.hpp"

namespace ringside::precision {

// The sum of `values` from left to right, from 0 on. Each value is rounded to the type `terms`, and
// the sum to the type `sum_in` after each addition.
inline float accumulated(std::span<const float> values, Type terms, Type sum_in) {
  float sum = 0;
  for (const float value : values) sum = rounded(sum + rounded(value, terms), sum_in);
  return sum;
}

// The largest power of two with which no gradient is larger than fp16's largest number. At least
// one gradient is not 0; all are finite.
inline float largest_scale(std::span<const float> gradients) {
  float largest = 0;
  for (const float gradient : gradients) largest = std::max(largest, std::abs(gradient));
  const float scale = std::ldexp(1.0f, 15 - std::ilogb(largest));
  return largest * scale > largest_fp16 ? scale / 2 : scale;
}

// Whether the optimizer may take its step. If all gradients are finite, they are divided by the
// scale; after `interval` such steps in a row the scale doubles, and the count starts over. Else
// they stay as they are, the scale halves, and the count starts over.
inline bool unscaled(std::span<float> gradients, LossScale& state) {
  for (const float gradient : gradients)
    if (!std::isfinite(gradient)) {
      state.scale /= 2;
      state.good_steps = 0;
      return false;
    }
  for (float& gradient : gradients) gradient /= state.scale;
  if (++state.good_steps == state.interval) {
    state.scale *= 2;
    state.good_steps = 0;
  }
  return true;
}

// The type of an operation's result under autocast to `low`; `inputs` are the types of its inputs,
// without weights.
inline Type result_type(Operation operation, std::span<const Type> inputs, Type low) {
  switch (operation) {
    case Operation::linear:
      return low;
    case Operation::activation:
      return inputs[0];
    case Operation::add:
      return std::ranges::count(inputs, Type::fp32) > 0 ? Type::fp32 : low;
    default:
      return Type::fp32;
  }
}

}  // namespace ringside::precision
