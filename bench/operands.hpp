// Operands of measured products. They are random, because a GPU multiplies constants faster than it
// multiplies numbers: bits that do not change take less power, and power limits the clock. On an
// H200, 894 TFLOP/s of constants are 788 of random numbers.
#pragma once

#include "autograd/tensor/tensor.hpp"

namespace ringside::cli {

class RandomOperands {
 public:
  RandomOperands(autograd::DType dtype, autograd::Device device);

  // Numbers of a normal distribution with mean 0 and deviation 1. Each tensor begins elsewhere in
  // one sequence of a million numbers, and repeats it if it is longer.
  autograd::Tensor make(autograd::Shape shape);

 private:
  autograd::Tensor sequence_;
  std::int64_t next_ = 0;
};

}  // namespace ringside::cli
