// What cross_entropy and linear_cross_entropy share: targets, and the mean over them.
#pragma once

#include <cstdint>

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// The number of targets (int32 on the CPU) that are not ignore_index. Throws Error that names `op`
// if one of them is not in 0..vocabulary-1.
std::int64_t count_targets(const char* op, const Tensor& targets, std::int64_t vocabulary,
                           std::int32_t ignore_index);

// 1 / count, the weight of each counted target in the mean; 1 for count 0, where all losses are 0.
double weight_of(std::int64_t count);

// A new tensor for the loss of each token: fp64 on the CPU, fp32 on a device.
Tensor empty_losses(std::int64_t tokens, Device device);

// The sum of the losses divided by `count`, as a scalar of `dtype`; 0 for count 0. On a device the
// host does not wait for it.
Tensor mean_loss(const Tensor& losses, std::int64_t count, DType dtype);

}  // namespace ringside::autograd
