#include "bench/operands.hpp"

#include <algorithm>
#include <utility>

#include "autograd/nn/layers.hpp"

namespace ringside::cli {

using autograd::DType;
using autograd::Tensor;

namespace {

// Primes: neither rows nor tensors repeat each other.
constexpr std::int64_t length = 1048573, step = 7919;

Tensor normal_numbers(DType dtype) {
  const Tensor numbers = Tensor::empty({length}, dtype);
  autograd::fill_normal(numbers, 0, 1, {1, "operands"});
  return numbers;
}

}  // namespace

RandomOperands::RandomOperands(DType dtype, autograd::Device device)
    : sequence_(normal_numbers(dtype).to(device)) {}

Tensor RandomOperands::make(autograd::Shape shape) {
  const Tensor all = Tensor::empty(std::move(shape), sequence_.dtype(), sequence_.device()),
               flat = all.reshape({all.elements()});
  std::int64_t from = next_ = (next_ + step) % length;
  for (std::int64_t at = 0; at < flat.elements();) {
    const std::int64_t count = std::min(length - from, flat.elements() - at);
    flat.narrow(0, at, count).copy_(sequence_.narrow(0, from, count));
    at += count, from = 0;
  }
  return all;
}

}  // namespace ringside::cli
