#include "exercises/judge/autograd/attention.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "autograd/tensor/bf16.hpp"
#include "base/random.hpp"

namespace ringside::exercises {
namespace {

double dot(const double* a, const double* b, std::int64_t n) {
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += a[i] * b[i];
  return total;
}

// One query: its probabilities, and the logarithm of the sum of exp(score).
double softmax_of(const double* q, const double* k, const AttentionShape& shape,
                  std::vector<double>& p) {
  const std::int64_t d = shape.head_size;
  for (std::size_t j = 0; j < p.size(); ++j)
    p[j] = dot(q, k + static_cast<std::int64_t>(j) * d, d) / std::sqrt(static_cast<double>(d));
  const double largest = *std::max_element(p.begin(), p.end());
  double total = 0;
  for (double& each : p) total += each = std::exp(each - largest);
  for (double& each : p) each /= total;
  return largest + std::log(total);
}

}  // namespace

std::string AttentionShape::text() const {
  return fmt::format("{} heads, {} kv heads, {} queries, {} keys", heads, kv_heads, queries, keys);
}

AttentionTensors random_attention(const AttentionShape& shape, std::uint64_t seed, float spread,
                                  bool bf16) {
  const auto numbers = [&](std::int64_t heads, std::int64_t tokens, std::uint64_t which,
                           float factor) {
    std::vector<double> all;
    for (std::int64_t i = 0; i < shape.batch * heads * tokens * shape.head_size; ++i) {
      const auto random = 2 * random_uniform(seed, which, static_cast<std::uint64_t>(i)) - 1;
      const float number = factor * static_cast<float>(random);
      all.push_back(bf16 ? static_cast<float>(autograd::Bf16(number)) : number);
    }
    return all;
  };
  return {numbers(shape.heads, shape.queries, 1, spread),
          numbers(shape.kv_heads, shape.keys, 2, 1),
          numbers(shape.kv_heads, shape.keys, 3, 1),
          {}};
}

DefinedAttention attention_by_definition(const AttentionShape& shape, const AttentionTensors& given,
                                         std::int64_t only) {
  const std::int64_t d = shape.head_size;
  DefinedAttention all{std::vector<double>(given.q.size()),
                       {},
                       std::vector<double>(given.q.size()),
                       std::vector<double>(given.k.size()),
                       std::vector<double>(given.v.size())};
  for (std::int64_t row = 0; row < shape.batch * shape.heads * shape.queries; ++row) {
    const std::int64_t head = row / shape.queries, seen = shape.sees(row % shape.queries),
                       first_key = head / shape.group() * shape.keys * d;
    const double *const q = &given.q[row * d], *const k = &given.k[first_key],
                        *const v = &given.v[first_key];
    std::vector<double> p(static_cast<std::size_t>(seen)), dp = p;
    all.log_sums.push_back(softmax_of(q, k, shape, p));
    for (std::int64_t j = 0; j < seen; ++j)
      for (std::int64_t n = 0; n < d; ++n) all.y[row * d + n] += p[j] * v[j * d + n];
    if (given.dy.empty() || (only >= 0 && only != head % shape.group())) continue;
    const double* const dy = &given.dy[row * d];
    double pull = 0;
    for (std::int64_t j = 0; j < seen; ++j) pull += p[j] * (dp[j] = dot(dy, v + j * d, d));
    for (std::int64_t j = 0; j < seen; ++j)
      for (std::int64_t n = 0; n < d; ++n) {
        const double ds = p[j] * (dp[j] - pull) / std::sqrt(static_cast<double>(d));
        all.dv[first_key + j * d + n] += p[j] * dy[n];
        all.dq[row * d + n] += ds * k[j * d + n];
        all.dk[first_key + j * d + n] += ds * q[n];
      }
  }
  return all;
}

}  // namespace ringside::exercises
