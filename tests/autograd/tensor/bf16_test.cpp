#include "autograd/kernels/copy.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <doctest/doctest.h>

#include "autograd/engine/engine.hpp"
#include "autograd/kernels/products/bf16_products.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/optim/adamw.hpp"
#include "autograd/optim/sgd.hpp"
#include "base/error.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

float rounded(float number) {
  return Bf16(number);
}

Tensor random(Shape shape, const char* name) {
  const Tensor x = Tensor::empty(std::move(shape), DType::bf16);
  fill_normal(x, 0, 1, {3, name});
  return x;
}

bool same_numbers(const Tensor& a, const Tensor& b) {
  const Tensor x = to_compute_dtype(a.contiguous()), y = to_compute_dtype(b.contiguous());
  const auto p = x.values<float>(), q = y.values<float>();
  return a.shape() == b.shape() && std::equal(p.begin(), p.end(), q.begin(), q.end());
}

// The same numbers, each rounded once to bf16. oneDNN adds up a product in another order: then a
// number may be the next one, because the sum lay between the two.
bool agree(const Tensor& a, const Tensor& b) {
  if (!has_bf16_products()) return same_numbers(a, b);
  const Tensor x = to_compute_dtype(a.contiguous()), y = to_compute_dtype(b.contiguous());
  const auto p = x.values<float>(), q = y.values<float>();
  return a.shape() == b.shape() &&
         std::equal(p.begin(), p.end(), q.begin(), q.end(), [](float one, float other) {
           return std::abs(one - other) <= 0x1p-7f * std::abs(other) + 1e-6f;
         });
}

// As gradients of a loss are in bf16: dz is rounded before it is multiplied, if bf16 is multiplied.
bool agree_but_for_dz(const Tensor& a, const Tensor& b) {
  if (!has_bf16_products()) return same_numbers(a, b);
  const Tensor x = to_compute_dtype(a), y = to_compute_dtype(b);
  float largest = 0, error = 0;
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    largest = std::max(largest, std::abs(y.data<float>()[i]));
    error = std::max(error, std::abs(x.data<float>()[i] - y.data<float>()[i]));
  }
  return a.shape() == b.shape() && error <= 0x1p-6f * largest;
}

using Op = std::function<Tensor(const std::vector<Tensor>&)>;

// An op on bf16 equals the op on the same numbers in fp32, rounded once; its gradients too.
void check_op(const Op& op, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> stored, computed;
  for (const Tensor& input : inputs) {
    stored.push_back(input.detach().set_requires_grad(true));
    computed.push_back(to_compute_dtype(input).set_requires_grad(true));
  }
  const Tensor y = op(stored), expected = op(computed);
  CHECK(y.dtype() == DType::bf16);
  CHECK(agree(y, to_storage_dtype(expected.detach(), DType::bf16)));
  const Tensor dy = random(y.shape(), "dy");
  backward(y, dy);
  backward(expected, to_compute_dtype(dy));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CAPTURE(i);
    CHECK(stored[i].grad().dtype() == DType::bf16);
    CHECK(agree(stored[i].grad(), to_storage_dtype(computed[i].grad(), DType::bf16)));
  }
}

}  // namespace

TEST_CASE("numbers are rounded to the nearest bf16, ties to even") {
  CHECK(rounded(1) == 1);
  CHECK(rounded(-2.5f) == -2.5f);
  CHECK(rounded(0x1.01p0f) == 0x1.00p0f);  // halfway between 1.00 and 1.02: the even one
  CHECK(rounded(0x1.03p0f) == 0x1.04p0f);
  CHECK(rounded(0x1.010002p0f) == 0x1.02p0f);
  CHECK(rounded(0x1.00fffep0f) == 0x1.00p0f);
  CHECK(std::isinf(rounded(std::numeric_limits<float>::max())));
  CHECK(std::isinf(rounded(-std::numeric_limits<float>::infinity())));
  CHECK(std::isnan(rounded(std::numeric_limits<float>::quiet_NaN())));
  // A NaN whose upper half alone would be infinity.
  CHECK(std::isnan(rounded(std::bit_cast<float>(0x7f800001u))));
  CHECK(std::signbit(rounded(-0.0f)));
}

TEST_CASE("conversion between bf16 and fp32 keeps the numbers and the memory order") {
  const Tensor x = random({3, 4, 5}, "x");
  for (const Tensor& view :
       {x, x.transpose(0, 2), x.narrow(1, 1, 2), x.narrow(2, 1, 3).transpose(0, 1)}) {
    const Tensor w = to_compute_dtype(view);
    CHECK(w.dtype() == DType::fp32);
    CHECK(w.shape() == view.shape());
    CHECK(same_numbers(w, view.clone()));
    CHECK(same_numbers(to_storage_dtype(w, DType::bf16), view));
  }
  CHECK(to_compute_dtype(x.transpose(0, 1)).strides() == x.transpose(0, 1).strides());
  const Tensor fp64 = Tensor::zeros({2}, DType::fp64);
  CHECK(to_compute_dtype(fp64).is_same(fp64));
  CHECK(to_storage_dtype(fp64, DType::fp64).is_same(fp64));
  CHECK_FALSE(to_storage_dtype(Tensor(), DType::bf16).defined());
}

TEST_CASE("the ops of the transformer compute bf16 in fp32 and round once") {
  check_op([](const auto& x) { return add(x[0], x[1]); },
           {random({3, 5}, "a"), random({3, 5}, "b")});
  for (const Shape& stretched : {Shape{5}, Shape{3, 1}, Shape{}})
    check_op([](const auto& x) { return add(x[0], x[1]); },
             {random({3, 5}, "a"), random(stretched, "b")});
  check_op([](const auto& x) { return linear(x[0], x[1]); },
           {random({7, 12}, "a"), random({5, 12}, "b")});
  check_op([](const auto& x) { return linear(x[0], x[1], x[2]); },
           {random({7, 12}, "a"), random({5, 12}, "b"), random({5}, "c")});
  check_op([](const auto& x) { return rms_norm(x[0], x[1]); },
           {random({6, 8}, "a"), random({8}, "b")});
  for (const auto activation : {relu, gelu, silu})
    check_op([&](const auto& x) { return activation(x[0]); }, {random({6, 8}, "a")});
  check_op([](const auto& x) { return swiglu(x[0], x[1]); },
           {random({6, 8}, "a"), random({6, 8}, "b")});
  const RopeTable table = rope_table(9, 8);
  check_op([&](const auto& x) { return rope(x[0].transpose(1, 2), table, 2); },
           {random({2, 7, 3, 8}, "a")});
  check_op([](const auto& x) { return causal_attention(x[0], x[1], x[2]); },
           {random({2, 4, 6, 8}, "q"), random({2, 2, 6, 8}, "k"), random({2, 2, 6, 8}, "v")});
  const Tensor ids = Tensor::from<std::int32_t>({1, 4, 1, 0}, {4});
  check_op([&](const auto& x) { return embedding(ids, x[0]); }, {random({5, 6}, "a")});
}

TEST_CASE("add_rms_norm normalises the sum after it is rounded to bf16") {
  const Tensor a = random({6, 8}, "a"), b = random({6, 8}, "b"), w = random({8}, "w");
  const auto [sum, normed] = add_rms_norm(a, b, w);
  CHECK(same_numbers(sum, add(a, b)));
  CHECK(normed.dtype() == DType::bf16);
}

TEST_CASE("a loss on bf16 logits is fp32") {
  Tensor logits = random({6, 11}, "z").set_requires_grad(true),
         fp32_logits = to_compute_dtype(logits).set_requires_grad(true);
  const Tensor targets = Tensor::from<std::int32_t>({1, 4, 1, 0, -100, 10}, {6});
  const Tensor loss = cross_entropy(logits, targets),
               expected = cross_entropy(fp32_logits, targets);
  CHECK(loss.dtype() == DType::fp32);
  CHECK(loss.item() == expected.item());
  backward(loss);
  backward(expected);
  CHECK(same_numbers(logits.grad(), to_storage_dtype(fp32_logits.grad(), DType::bf16)));
}

TEST_CASE("linear_cross_entropy of bf16 is fp32 and rounds its gradients once") {
  Tensor x = random({6, 8}, "x").set_requires_grad(true),
         w = random({11, 8}, "w").set_requires_grad(true);
  Tensor fp32_x = to_compute_dtype(x).set_requires_grad(true),
         fp32_w = to_compute_dtype(w).set_requires_grad(true);
  const Tensor targets = Tensor::from<std::int32_t>({1, 4, 1, 0, -100, 10}, {6});
  const Tensor loss = linear_cross_entropy(x, w, targets, -100, 4),
               expected = linear_cross_entropy(fp32_x, fp32_w, targets, -100, 4);
  CHECK(loss.dtype() == DType::fp32);
  CHECK(std::abs(loss.item() - expected.item()) <= (has_bf16_products() ? 1e-5 : 0));
  backward(loss);
  backward(expected);
  CHECK(agree_but_for_dz(x.grad(), to_storage_dtype(fp32_x.grad(), DType::bf16)));
  CHECK(agree_but_for_dz(w.grad(), to_storage_dtype(fp32_w.grad(), DType::bf16)));
}

TEST_CASE("an op without bf16 names the dtypes that it takes") {
  CHECK_THROWS_WITH_AS(sum(random({2}, "x")), "sum: expected a tensor of fp32 or fp64, got bf16",
                       Error);
}

TEST_CASE("fp32 masters keep the small steps that bf16 would round away") {
  Tensor weight = Tensor::full({4}, 1, DType::bf16).set_requires_grad(true);
  SGD optimizer({{.parameters = {{"w", weight}}, .learning_rate = 1e-3}});
  const auto names = optimizer.state();
  REQUIRE(names.size() == 1);
  CHECK(names[0].name == "w.master");
  for (int i = 0; i < 20; ++i) {
    weight.set_grad(Tensor::full({4}, 1, DType::bf16));
    optimizer.step();
  }
  // A step is less than half of the distance between two bf16 numbers below 1, which is 1/256.
  CHECK(names[0].tensor.values<float>()[0] == doctest::Approx(0.98).epsilon(1e-5));
  CHECK(static_cast<float>(weight.values<Bf16>()[0]) == rounded(0.98f));
  const AdamW adamw({{.parameters = {{"w", weight}}}});
  CHECK(adamw.state()[0].tensor.dtype() == DType::fp32);
}
