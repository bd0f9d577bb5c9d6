// Gradients that are computed in memory that their leaf was lent, such as a part of a bucket.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "autograd/engine/checkpointing.hpp"
#include "autograd/engine/deferred_gradients.hpp"
#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "base/error.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

// A weight of 3 x 2, and twice its elements in one buffer, of which it is lent the second half.
struct Lent {
  Lent()
      : weight(Tensor::full({3, 2}, 1).set_requires_grad(true)),
        buffer(Tensor::full({12}, std::numeric_limits<double>::quiet_NaN())) {
    weight.lend_grad_memory(half());
  }
  Tensor half() const { return Tensor::view_of(buffer.storage(), 6, {3, 2}, buffer.dtype()); }
  bool holds_gradient() const {
    return weight.grad().defined() && weight.grad().storage() == buffer.storage() &&
           weight.grad().offset() == 6;
  }
  // Whether every number of the gradient is `wanted`.
  bool is(float wanted) const {
    const auto seen = weight.grad().values<float>();
    return std::all_of(seen.begin(), seen.end(), [=](float value) { return value == wanted; });
  }
  Tensor weight, buffer;
};

// Five rows of ones: the sum of their products has a gradient of 5 everywhere.
Tensor loss(const Tensor& weight) {
  return sum(linear(Tensor::full({5, 2}, 1), weight));
}

std::string refusal(const Tensor& tensor, const Tensor& memory) {
  try {
    tensor.lend_grad_memory(memory);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("the gradient of a matrix is computed in the memory that it was lent") {
  const Lent lent;
  backward(loss(lent.weight));
  CHECK(lent.holds_gradient());
  CHECK(lent.is(5));
  CHECK(lent.buffer.values<float>()[5] != lent.buffer.values<float>()[5]);  // still NaN

  backward(loss(lent.weight));  // a second pass adds, where the first wrote
  CHECK(lent.holds_gradient());
  CHECK(lent.is(10));
}

TEST_CASE("so is that of an embedding, whose other rows are zeros") {
  const Lent lent;
  backward(sum(embedding(Tensor::from(std::vector<std::int32_t>{1, 1}, {2}), lent.weight)));
  CHECK(lent.holds_gradient());
  const auto seen = lent.weight.grad().values<float>();
  CHECK(std::vector(seen.begin(), seen.end()) == std::vector<float>{0, 0, 2, 2, 0, 0});
}

TEST_CASE("memory is lent once: a later gradient must not overwrite what a collective reads") {
  const Lent lent;
  backward(loss(lent.weight));
  lent.weight.set_grad({});  // as while the bucket's collective is under way
  lent.buffer.fill_(7);
  backward(loss(lent.weight));
  CHECK(!lent.holds_gradient());
  CHECK(lent.is(5));
  for (const float value : lent.buffer.values<float>()) CHECK(value == 7);

  lent.weight.set_grad({});
  lent.weight.lend_grad_memory(lent.half());
  backward(loss(lent.weight));
  CHECK(lent.holds_gradient());
  CHECK(lent.is(5));
}

TEST_CASE("a weight that is used twice has the sum, although its first use took the memory") {
  for (const bool deferred : {false, true}) {
    CAPTURE(deferred);
    const Lent lent;
    const Tensor twice = add(loss(lent.weight), loss(lent.weight));
    if (deferred) {
      DeferredGradients later;
      {
        const DeferredGradients::Scope scope(later);
        backward(twice);
      }
      CHECK(!lent.weight.grad().defined());
      later.run();
    } else {
      backward(twice);
    }
    CHECK(lent.holds_gradient());
    CHECK(lent.is(10));
  }
}

// Backward reaches the uses from the last to the first. The block's own pass brings its part while
// the memory holds that of the last use, which waits for the first.
TEST_CASE("a weight that a checkpointed block and other ops use has the sum") {
  const Lent lent;
  const Tensor first = loss(lent.weight);
  const Tensor block = checkpoint([&](const Tensor& x) { return linear(x, lent.weight); },
                                  Tensor::full({5, 2}, 2).set_requires_grad(true));
  const Tensor last = loss(lent.weight);
  backward(add(first, add(sum(block), last)));
  CHECK(lent.is(5 + 10 + 5));
}

TEST_CASE("what is not computed in lent memory is copied there") {
  const Tensor x = Tensor::full({4}, 2).set_requires_grad(true), memory = Tensor::full({4}, 7);
  x.lend_grad_memory(memory);
  backward(sum(mul(x, x)));
  CHECK(x.grad().storage() == memory.storage());
  for (const float value : memory.values<float>()) CHECK(value == 4);
}

TEST_CASE("lent memory stays unused where a leaf has a gradient, or where the loan has ended") {
  const Lent lent;
  lent.weight.set_grad(Tensor::full({3, 2}, 1));
  backward(loss(lent.weight));
  CHECK(!lent.holds_gradient());
  CHECK(lent.is(6));

  const Lent ended;
  ended.weight.lend_grad_memory({});
  backward(loss(ended.weight));
  CHECK(!ended.holds_gradient());
  CHECK(ended.is(5));
  CHECK(ended.buffer.storage().use_count() == 1);
}

TEST_CASE("memory that cannot hold the gradient is refused") {
  const Lent lent;
  CHECK(refusal(lent.weight, Tensor::full({2, 3}, 0)) ==
        "lend_grad_memory: expected fp32 [3, 2] as the tensor itself, got fp32 [2, 3]");
  CHECK(refusal(lent.weight, Tensor::full({3, 2}, 0, DType::fp64)) ==
        "lend_grad_memory: expected fp32 [3, 2] as the tensor itself, got fp64 [3, 2]");
  CHECK(refusal(lent.weight, Tensor::full({2, 3}, 0).transpose(0, 1)) ==
        "lend_grad_memory: expected a contiguous gradient, got strides [1, 3]");
  CHECK(refusal(loss(lent.weight), Tensor::full({}, 0)) ==
        "lend_grad_memory: expected a leaf, got the result of sum");
}
