#include "exercises/judge/tensor_parallel/divided_tensors.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "autograd/nn/layers.hpp"

namespace ringside::exercises {

using namespace autograd;

Tensor numbers(Shape shape, std::uint64_t seed, std::string_view name, DType dtype) {
  const Tensor made = Tensor::empty(std::move(shape), dtype);
  fill_normal(made, 0, 1, {seed, name});
  return made;
}

Tensor part(const Tensor& whole, std::int64_t dimension, int ranks, int rank) {
  if (!whole.defined()) return whole;
  const std::int64_t each = whole.size(dimension) / ranks, longer = whole.size(dimension) % ranks;
  return whole
      .narrow(dimension, rank * each + std::min<std::int64_t>(rank, longer),
              each + (rank < longer ? 1 : 0))
      .clone();
}

std::vector<double> values(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  const Tensor whole = tensor.contiguous();
  if (whole.dtype() == DType::fp32)
    return {whole.values<float>().begin(), whole.values<float>().end()};
  return {whole.values<double>().begin(), whole.values<double>().end()};
}

std::string fault_of(std::string_view what, const std::vector<double>& seen,
                     const std::vector<double>& expected, const std::vector<double>& alone,
                     int ranks, double tolerance) {
  if (seen.size() != expected.size())
    return fmt::format("{} has {} numbers, expected {}", what, seen.size(), expected.size());
  double largest = 0;
  for (const double each : expected) largest = std::max(largest, std::abs(each));
  const auto equal = [&](double a, double b) { return std::abs(a - b) <= tolerance * largest; };
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (equal(seen[i], expected[i])) continue;
    return fmt::format("{} has {:.6g} at [{}], expected {:.6g}{}", what, seen[i], i, expected[i],
                       equal(seen[i], alone[i]) ? ": that is what this rank computes alone"
                       : equal(seen[i], ranks * expected[i])
                           ? fmt::format(": that is {} times as much", ranks)
                           : "");
  }
  return "";
}

}  // namespace ringside::exercises
