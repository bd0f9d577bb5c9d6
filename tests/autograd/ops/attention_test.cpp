#include <cmath>
#include <vector>

#include "autograd/kernels/threads/parallel.hpp"
#include "base/error.hpp"
#include "tests/autograd/gradcheck.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

// The definition, computed element by element.
Tensor plain_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::int64_t batch = q.size(0), heads = q.size(1), queries = q.size(2), d = q.size(3),
                     kv_heads = k.size(1), keys = k.size(2);
  const Tensor y = Tensor::zeros(q.shape(), DType::fp64);
  const auto at = [](const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t t,
                     std::int64_t i) -> double& {
    return x.data<double>()[b * x.strides()[0] + h * x.strides()[1] + t * x.strides()[2] +
                            i * x.strides()[3]];
  };
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t kv = h / (heads / kv_heads);
      for (std::int64_t t = 0; t < queries; ++t) {
        std::vector<double> weight;
        double total = 0;
        for (std::int64_t j = 0; j <= t + keys - queries; ++j) {
          double score = 0;
          for (std::int64_t i = 0; i < d; ++i) score += at(q, b, h, t, i) * at(k, b, kv, j, i);
          weight.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
          total += weight.back();
        }
        for (std::size_t j = 0; j < weight.size(); ++j)
          for (std::int64_t i = 0; i < d; ++i)
            at(y, b, h, t, i) += weight[j] / total * at(v, b, kv, static_cast<std::int64_t>(j), i);
      }
    }
  }
  return y;
}

struct Case {
  std::int64_t batch, heads, kv_heads, queries, keys, head_size;
};

std::vector<Tensor> inputs_of(const Case& c) {
  return {random_tensor({c.batch, c.heads, c.queries, c.head_size}, "q"),
          random_tensor({c.batch, c.kv_heads, c.keys, c.head_size}, "k"),
          random_tensor({c.batch, c.kv_heads, c.keys, c.head_size}, "v")};
}

Tensor attention(const std::vector<Tensor>& in) {
  return causal_attention(in[0], in[1], in[2]);
}

}  // namespace

TEST_CASE("causal_attention equals its definition for several blocks and for grouped heads") {
  for (const Case& c :
       {Case{1, 1, 1, 1, 1, 1}, Case{2, 3, 3, 5, 5, 4}, Case{1, 4, 2, 7, 7, 3},
        Case{1, 2, 1, 130, 130, 8}, Case{2, 2, 2, 1, 9, 4}, Case{1, 2, 1, 65, 70, 5}}) {
    const std::vector<Tensor> in = inputs_of(c);
    CHECK(largest_difference(attention(in), plain_attention(in[0], in[1], in[2])) < 1e-12);
  }
}

TEST_CASE("gradients of causal_attention with one head and with grouped heads") {
  for (const Case& c : {Case{1, 1, 1, 1, 1, 1}, Case{1, 1, 1, 5, 5, 3}, Case{2, 4, 2, 3, 3, 2},
                        Case{1, 3, 1, 2, 6, 4}, Case{1, 2, 1, 67, 67, 2}})
    check_gradients("attention", attention, inputs_of(c));
}

TEST_CASE("causal_attention reads transposed views in place, gradients through them") {
  const auto through_views = [](const std::vector<Tensor>& in) {
    const Tensor y =
        causal_attention(in[0].transpose(1, 2), in[1].transpose(1, 2), in[2].transpose(1, 2));
    return y.transpose(1, 2).reshape({2, 5, 12});
  };
  const std::vector<Tensor> in = {random_tensor({2, 5, 4, 3}, "q"),
                                  random_tensor({2, 5, 2, 3}, "k"),
                                  random_tensor({2, 5, 2, 3}, "v")};
  check_gradients("attention through views", through_views, in);
  const Tensor y =
      causal_attention(in[0].transpose(1, 2), in[1].transpose(1, 2), in[2].transpose(1, 2));
  CHECK(y.transpose(1, 2).is_contiguous());
}

TEST_CASE("no query sees a later key") {
  const std::vector<Tensor> in = inputs_of({1, 1, 1, 8, 8, 4});
  const Tensor before = attention(in).clone();
  for (int t = 5; t < 8; ++t)
    for (int i = 0; i < 4; ++i)
      in[1].data<double>()[t * 4 + i] = 100, in[2].data<double>()[t * 4 + i] = 1e6;
  const Tensor after = attention(in);
  CHECK(largest_difference(before.narrow(2, 0, 5), after.narrow(2, 0, 5)) == 0);
}

TEST_CASE("the last queries with a KV cache give the same result as in the whole sequence") {
  const std::vector<Tensor> in = inputs_of({1, 2, 2, 9, 9, 4});
  const Tensor last = causal_attention(in[0].narrow(2, 8, 1), in[1], in[2]);
  CHECK(largest_difference(last, attention(in).narrow(2, 8, 1)) < 1e-14);
}

TEST_CASE("attention does not overflow on large scores in fp32") {
  const Tensor q = Tensor::full({1, 1, 4, 4}, 100),
               v = random_tensor({1, 1, 4, 4}, "v", DType::fp32);
  for (const double y : to_vector(causal_attention(q, q, v))) CHECK(std::isfinite(y));
}

TEST_CASE("gradients in fp32 are not the rounding of log_sum where scores are large") {
  // Each query is 20000 times the key of its own position, and all keys have length 1. Positions
  // come in pairs with the same key and value. So a row's probability lies on one key or, half and
  // half, on two. The gradients of q and k are differences of equal numbers, and 0. log_sum is
  // about 7000, where fp32 has steps of 0.0005.
  constexpr double size = 20000;
  const Shape shape{1, 2, 65, 8};
  std::vector<float> k, q, v;
  for (const double x : to_vector(random_tensor(shape, "k"))) k.push_back(static_cast<float>(x));
  for (const double x : to_vector(random_tensor(shape, "v"))) v.push_back(static_cast<float>(x));
  for (std::size_t row = 0; row < k.size(); row += 8) {
    double squares = 0;
    for (std::size_t i = row; i < row + 8; ++i) squares += k[i] * k[i];
    for (std::size_t i = row; i < row + 8; ++i)
      k[i] = static_cast<float>(k[i] / std::sqrt(squares));
  }
  for (std::size_t pair = 0; pair + 16 <= k.size(); pair += 16)
    for (std::size_t i = pair; i < pair + 8; ++i) k[i + 8] = k[i], v[i + 8] = v[i];
  for (const float x : k) q.push_back(static_cast<float>(x * size));
  std::vector<Tensor> in = {Tensor::from(q, shape), Tensor::from(k, shape), Tensor::from(v, shape)};
  for (Tensor& x : in) x.set_requires_grad(true);
  backward(attention(in), random_tensor(shape, "dy", DType::fp32));
  const auto largest = [](const Tensor& x) {
    double found = 0;
    for (const double value : to_vector(x)) found = std::max(found, std::abs(value));
    return found;
  };
  CHECK(largest(in[0].grad()) < 5e-6);         // dq = dS K
  CHECK(largest(in[1].grad()) < 5e-6 * size);  // dK = dS^T Q
}

TEST_CASE("attention names the shape that does not fit") {
  const auto zeros = [](Shape shape) { return Tensor::zeros(std::move(shape)); };
  CHECK_THROWS_WITH_AS(
      causal_attention(zeros({1, 3, 4, 2}), zeros({1, 2, 4, 2}), zeros({1, 2, 4, 2})),
      "causal_attention: 3 query heads cannot share 2 key heads evenly", Error);
  CHECK_THROWS_WITH_AS(
      causal_attention(zeros({1, 2, 4, 2}), zeros({1, 2, 3, 2}), zeros({1, 2, 3, 2})),
      "causal_attention: expected at least one query and no more queries than keys, got 4 and 3",
      Error);
  CHECK_THROWS_WITH_AS(causal_attention(zeros({2, 4, 2}), zeros({1, 2, 3, 2}), zeros({1, 2, 3, 2})),
                       "causal_attention: expected q [B, H, T, D], k and v [B, H_kv, T, D], got "
                       "[2, 4, 2], [1, 2, 3, 2] and [1, 2, 3, 2]",
                       Error);
}
