// Judges the backward of causal attention: against the formula, head by head; its memory; and that
// heads do not disturb each other.
#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "exercises/11-attention-backward/interface.hpp"
#include "exercises/judge/autograd/attention.hpp"
#include "exercises/judge/autograd/tensors.hpp"

namespace ringside::exercises {
namespace {

using namespace autograd;

// A block has 64 queries: 65 and 130 need two and three of them.
constexpr AttentionShape shapes[] = {{2, 1, 1, 1, 1, 4},   {2, 2, 2, 7, 7, 4},
                                     {1, 2, 2, 65, 65, 8}, {1, 2, 2, 5, 9, 4},
                                     {2, 4, 2, 7, 7, 4},   {1, 4, 1, 130, 130, 8}};

struct Inputs {
  Tensor q, k, v, dy;
  Inputs(const AttentionShape& p, std::uint64_t seed)
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

// `only` is the number, within its group, of the query heads whose dy counts; -1: all count.
Json expected_gradients(const AttentionShape& p, std::uint64_t seed, std::int64_t only = -1) {
  const Inputs in(p, seed);
  const auto numbers = [](const Tensor& x) {
    return std::vector<double>(x.values<double>().begin(), x.values<double>().end());
  };
  const DefinedAttention all = attention_by_definition(
      p, {numbers(in.q), numbers(in.k), numbers(in.v), numbers(in.dy)}, only);
  return {{"dq", json_of(Tensor::from(all.dq, in.q.shape()))},
          {"dk", json_of(Tensor::from(all.dk, in.k.shape()))},
          {"dv", json_of(Tensor::from(all.dv, in.v.shape()))}};
}

Json collect_gradients(World& world) {
  Json seen = Json::array();
  for (const AttentionShape& each : shapes) {
    const Inputs in(each, world.seed());
    world.doing("the backward of " + each.text());
    backward(student_attention(in.q, in.k, in.v), in.dy);
    seen.push_back(in.gradients());
  }
  return seen;
}

Verdict judge_gradients(const Run& run) {
  for (std::size_t i = 0; i < std::size(shapes); ++i) {
    const AttentionShape& p = shapes[i];
    const Json &seen = run.ranks[0].at(i), expected = expected_gradients(p, run.seed);
    for (const char* name : {"dq", "dv", "dk"}) {
      const std::string fault = difference(name, seen.at(name), expected[name]);
      if (fault.empty()) continue;
      for (std::int64_t h = 0; h < p.group() && p.heads > p.kv_heads; ++h)
        if (difference(name, seen[name], expected_gradients(p, run.seed, h)[name]).empty())
          return {
              {fmt::format("{}: kv head 0 serves query heads 0 to {}; {} holds only head {}'s part",
                           p.text(), p.group() - 1, name, h)}};
      return {{fmt::format("{}: {}", p.text(), fault)}};
    }
  }
  return {};
}

constexpr AttentionShape large = {1, 4, 2, 512, 512, 8};

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
  const AttentionShape p = {1, 4, 2, 70, 70, 8};
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
