// Three types of numbers, and what the exercise counts with. Students get this file whole.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/tensor/bf16.hpp"

namespace ringside::precision {

enum class Type { fp32, bf16, fp16 };

constexpr float largest_fp16 = 65504;

// The nearest fp16: 10 bits of fraction, exponents from -14 on; ties go to even. Numbers from 65520
// on become infinite.
inline float rounded_to_fp16(float x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int unit = std::max(std::ilogb(x), -14) - 10;
  const float rounded = std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
  const float infinite = std::numeric_limits<float>::infinity();
  return std::abs(rounded) > largest_fp16 ? std::copysign(infinite, x) : rounded;
}

// x as a number of this type holds it.
inline float rounded(float x, Type type) {
  if (type == Type::fp32) return x;
  return type == Type::bf16 ? float{autograd::Bf16(x)} : rounded_to_fp16(x);
}

// What a training with fp16 gradients keeps from step to step.
struct LossScale {
  float scale = 65536;  // the loss is multiplied by it before backward; a power of two
  int good_steps = 0;   // in a row, since the scale changed or a gradient was not finite
  int interval = 2000;  // so many good steps double the scale
};

// Operations under autocast. activation: GELU, SiLU and the like.
enum class Operation { linear, activation, add, norm, softmax, loss };

}  // namespace ringside::precision

namespace student::precision {
using namespace ringside::precision;
}
