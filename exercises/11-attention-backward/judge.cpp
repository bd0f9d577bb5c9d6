// Judges the backward of causal attention: against the formula, head by head; its memory; and that
// heads do not disturb each other.
#include <cmath>

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "exercises/11-attention-backward/interface.hpp"
#include "exercises/judge/tensors.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

struct Problem {
  std::int64_t batch, heads, kv_heads, queries, keys, head_size;
  std::string text() const {
    return fmt::format("{} heads, {} kv heads, {} queries, {} keys", heads, kv_heads, queries,
                       keys);
  }
};

// A block has 64 queries: 65 and 130 need two and three of them.
constexpr Problem problems[] = {{2, 1, 1, 1, 1, 4}, {2, 2, 2, 7, 7, 4}, {1, 2, 2, 65, 65, 8},
                                {1, 2, 2, 5, 9, 4}, {2, 4, 2, 7, 7, 4}, {1, 4, 1, 130, 130, 8}};

struct Inputs {
  Tensor q, k, v, dy;
  Inputs(const Problem& p, std::uint64_t seed)
      : q(random_tensor({p.batch, p.heads, p.queries, p.head_size}, seed, 1)),
        k(random_tensor({p.batch, p.kv_heads, p.keys, p.head_size}, seed, 2)),
        v(random_tensor({p.batch, p.kv_heads, p.keys, p.head_size}, seed, 3)),
        dy(random_tensor({p.batch, p.heads, p.queries, p.head_size}, seed, 4)) {
    q.set_requires_grad(true), k.set_requires_grad(true), v.set_requires_grad(true);
  }
  Json gradients() const {
    return {{"dq", json_of(q.grad())}, {"dk", json_of(k.grad())}, {"dv", json_of(v.grad())}};
  }
};

// Plain loops over the definition: no blocks, and the whole matrix P. `only` is the number,
// within its group, of the query heads whose dy counts; -1: all count.
Json expected_gradients(const Problem& p, std::uint64_t seed, std::int64_t only = -1) {
  const Inputs in(p, seed);
  const auto at = [&](const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t t) {
    return x.data<double>() + ((b * x.size(1) + h) * x.size(2) + t) * p.head_size;
  };
  for (const Tensor* each : {&in.q, &in.k, &in.v})
    each->set_grad(Tensor::zeros(each->shape(), DType::fp64));
  const auto dot = [&](const double* a, const double* b) {
    double total = 0;
    for (std::int64_t d = 0; d < p.head_size; ++d) total += a[d] * b[d];
    return total;
  };
  const double scale = 1 / std::sqrt(static_cast<double>(p.head_size));
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for (std::int64_t i = 0; i < p.queries && (only < 0 || only == h % (p.heads / p.kv_heads));
           ++i) {
        const std::int64_t kv = h / (p.heads / p.kv_heads), seen = i + 1 + p.keys - p.queries;
        const double *q = at(in.q, b, h, i), *dy = at(in.dy, b, h, i);
        std::vector<double> probability(static_cast<std::size_t>(seen)), dp = probability;
        double total = 0, pull = 0;
        for (std::int64_t j = 0; j < seen; ++j) {
          probability[j] = std::exp(dot(q, at(in.k, b, kv, j)) * scale);
          total += probability[j];
          dp[j] = dot(dy, at(in.v, b, kv, j));
        }
        for (std::int64_t j = 0; j < seen; ++j) pull += (probability[j] /= total) * dp[j];
        for (std::int64_t j = 0; j < seen; ++j)
          for (std::int64_t d = 0; d < p.head_size; ++d) {
            const double ds = probability[j] * (dp[j] - pull) * scale;
            at(in.v.grad(), b, kv, j)[d] += probability[j] * dy[d];
            at(in.q.grad(), b, h, i)[d] += ds * at(in.k, b, kv, j)[d];
            at(in.k.grad(), b, kv, j)[d] += ds * q[d];
          }
      }
  return in.gradients();
}

Json collect_gradients(World& world) {
  Json seen = Json::array();
  for (const Problem& each : problems) {
    const Inputs in(each, world.seed());
    world.doing("the backward of " + each.text());
    backward(student_attention(in.q, in.k, in.v), in.dy);
    seen.push_back(in.gradients());
  }
  return seen;
}

Verdict judge_gradients(const Run& run) {
  for (std::size_t i = 0; i < std::size(problems); ++i) {
    const Problem& p = problems[i];
    const Json &seen = run.ranks[0].at(i), expected = expected_gradients(p, run.seed);
    for (const char* name : {"dq", "dv", "dk"}) {
      const std::string fault = difference(name, seen.at(name), expected[name]);
      if (fault.empty()) continue;
      for (std::int64_t h = 0; h < p.heads / p.kv_heads && p.heads > p.kv_heads; ++h)
        if (difference(name, seen[name], expected_gradients(p, run.seed, h)[name]).empty())
          return {
              {fmt::format("{}: kv head 0 serves query heads 0 to {}; {} holds only head {}'s part",
                           p.text(), p.heads / p.kv_heads - 1, name, h)}};
      return {{fmt::format("{}: {}", p.text(), fault)}};
    }
  }
  return {};
}

constexpr Problem large = {1, 4, 2, 512, 512, 8};

Json collect_memory(World& world) {
  const Inputs in(large, world.seed());
  const Tensor y = student_attention(in.q, in.k, in.v);
  const auto before = memory_use().current;
  reset_peak_memory();
  backward(y, in.dy);
  return memory_use().peak - before;
}

// The gradients, and two blocks of 64 rows for each thread, of which a case has one.
Verdict judge_memory(const Run& run) {
  const auto matrix = large.queries * large.keys * 8;
  const std::int64_t seen = run.ranks[0];
  if (seen < matrix) return {};
  return {
      {fmt::format("backward took {} bytes, of which one T x T matrix of T = {} takes {}: "
                   "keep only the block of rows that p and dp point to",
                   seen, large.queries, matrix)}};
}

// The bits of each group of heads: in a backward of all heads, in a second one, and alone.
Json collect_bits(World& world) {
  const Problem p = {1, 4, 2, 70, 70, 8};
  const Inputs in(p, world.seed());
  const auto part = [](const Tensor& x, std::int64_t from, std::int64_t heads) {
    return x.detach().narrow(1, from, heads).clone().set_requires_grad(true);
  };
  Json seen;
  for (const char* which : {"all heads", "all heads again"}) {
    for (const Tensor* each : {&in.q, &in.k, &in.v}) each->zero_grad();
    backward(student_attention(in.q, in.k, in.v), in.dy);
    for (std::int64_t g = 0; g < p.kv_heads; ++g)
      seen[which].push_back({fingerprint(part(in.q.grad(), 2 * g, 2)),
                             fingerprint(part(in.k.grad(), g, 1)),
                             fingerprint(part(in.v.grad(), g, 1))});
  }
  for (std::int64_t g = 0; g < p.kv_heads; ++g) {
    const Tensor q = part(in.q, 2 * g, 2), k = part(in.k, g, 1), v = part(in.v, g, 1);
    backward(student_attention(q, k, v), part(in.dy, 2 * g, 2).detach());
    seen["alone"].push_back({fingerprint(q.grad()), fingerprint(k.grad()), fingerprint(v.grad())});
  }
  return seen;
}

Verdict judge_bits(const Run& run) {
  const Json& seen = run.ranks[0];
  for (const char* which : {"all heads again", "alone"})
    for (std::size_t group = 0; group < 2; ++group)
      for (std::size_t i = 0; i < 3; ++i)
        if (seen.at(which).at(group).at(i) != seen.at("all heads").at(group).at(i))
          return {
              {fmt::format("{} of kv head {} has other bits in the run of {} than in that of "
                           "all heads: what was in its memory before?",
                           std::array{"dq", "dk", "dv"}[i], group, which)}};
  return {};
}

const Judge judge("11-attention-backward", {{"gradients", collect_gradients, judge_gradients},
                                            {"memory", collect_memory, judge_memory},
                                            {"bits", collect_bits, judge_bits}});

}  // namespace
}  // namespace ringside::exercises
