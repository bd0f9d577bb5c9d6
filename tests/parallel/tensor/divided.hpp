// What the tests of parallel/tensor/ share: numbers, comparison with one process, counted calls.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "base/trace/trace.hpp"
#include "collectives/execution/traffic.hpp"
#include "parallel/tensor/linear.hpp"
#include "parallel/tensor/vocabulary.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/text.hpp"

namespace ringside::tests {

using namespace autograd;

// Standard normal numbers, the same on every rank.
inline Tensor drawn(Shape shape, const std::string& name, DType dtype = DType::fp64) {
  const Tensor tensor = Tensor::empty(std::move(shape), dtype);
  fill_normal(tensor, 0, 1, {7, name});
  return tensor;
}

inline Tensor learned(const Tensor& values) {
  Tensor parameter = values.detach().clone();
  parameter.set_requires_grad(true);
  return parameter;
}

// Throws Error that names the first element that differs by more than `tolerance` times the largest
// element expected.
inline void must_be(const Tensor& seen, const Tensor& expected, std::string_view what,
                    double tolerance = 1e-12) {
  require(seen.defined(), "{} is missing", what);
  require(seen.shape() == expected.shape(), "{}: shape {} instead of {}", what, seen.shape(),
          expected.shape());
  const Tensor a = seen.detach().contiguous(), b = expected.detach().contiguous();
  double largest = 1e-30;
  for (const double value : b.values<double>()) largest = std::max(largest, std::abs(value));
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    const double x = a.values<double>()[i], y = b.values<double>()[i];
    require(std::abs(x - y) <= tolerance * largest, "{}: element {} is {} instead of {}", what, i,
            x, y);
  }
}

// This rank's tokens of [B, T, d].
inline Tensor tokens_of(const Tensor& all, const ProcessGroup& group) {
  const std::int64_t own = all.size(1) / group.size();
  return all.narrow(1, group.rank() * own, own).contiguous();
}

// The calls of this thread while it lives, and the bytes that this rank has sent in them.
class CountedCalls {
 public:
  explicit CountedCalls(ProcessGroup& group)
      : group_(group), on_(trace_), before_(group.traffic().payload_bytes_sent) {}

  std::vector<Trace::Span> in_order() const {
    std::vector<Trace::Span> calls;
    for (const Trace::Span& span : trace_.spans())
      if (span.kind == Trace::Kind::call) calls.push_back(span);
    return calls;
  }
  // "all_reduce mlp": how often.
  std::map<std::string, int> calls() const {
    std::map<std::string, int> counts;
    for (const Trace::Span& span : in_order())
      ++counts[fmt::format("{} {}", span.name, span.about)];
    return counts;
  }
  std::uint64_t bytes() const { return group_.traffic().payload_bytes_sent - before_; }

  void must_be(const std::map<std::string, int>& expected, std::uint64_t expected_bytes) const {
    require(calls() == expected, "the calls are {} instead of {}", calls(), expected);
    require(bytes() == expected_bytes, "rank {} sent {} bytes instead of {}", group_.rank(),
            bytes(), expected_bytes);
  }

 private:
  ProcessGroup& group_;
  Trace trace_;
  Trace::On on_;
  std::uint64_t before_;
};

}  // namespace ringside::tests
