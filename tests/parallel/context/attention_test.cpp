// Context-parallel attention against causal_attention on one process, in fp64 and bf16: outputs and
// gradients of every exchange and order, over threads, shared memory and TCP.
#include "parallel/context/attention.hpp"

#include <cmath>

#include "autograd/engine/engine.hpp"
#include "autograd/kernels/copy.hpp"
#include "autograd/ops/attention_block.hpp"
#include "autograd/ops/ops.hpp"
#include "base/error.hpp"
#include "base/trace/trace.hpp"
#include "collectives/execution/traffic.hpp"
#include "collectives/group_options.hpp"
#include "collectives/selection/algorithm_selection.hpp"
#include "tests/collectives/worlds.hpp"
#include "tests/parallel/tensor/divided.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::tests;
using namespace ringside::context_parallel;

namespace {

struct Case {
  std::int64_t batch = 2, heads = 12, kv_heads = 12, tokens = 48, head_size = 6;

  // In memory [B, T, H, D], as linear layers leave heads.
  Tensor draw(std::int64_t count, const char* name) const {
    return drawn({batch, tokens, count, head_size}, name).transpose(1, 2);
  }
};

// The tokens of a rank, in new memory of the same order.
Tensor own_tokens(const Tensor& whole, TokenOrder order, int ranks, int rank) {
  const std::int64_t length = whole.size(2) / piece_count(order, ranks);
  const Tensor own =
      Tensor::empty({whole.size(0), whole.size(2) / ranks, whole.size(1), whole.size(3)},
                    whole.dtype())
          .transpose(1, 2);
  std::int64_t begin = 0;
  for (const int piece : pieces_of(order, ranks, rank)) {
    own.narrow(2, begin, length).copy_(whole.detach().narrow(2, piece * length, length));
    begin += length;
  }
  return own;
}

struct Whole {
  Tensor y, dq, dk, dv;
};

Whole whole(const Case& of) {
  const Tensor q = learned(of.draw(of.heads, "q").contiguous()),
               k = learned(of.draw(of.kv_heads, "k").contiguous()),
               v = learned(of.draw(of.kv_heads, "v").contiguous());
  const Tensor y = autograd::causal_attention(q, k, v);
  backward(y, of.draw(of.heads, "dy").contiguous());
  return {y.detach(), q.grad(), k.grad(), v.grad()};
}

void as_rank(const Case& of, const ContextOptions& options, const Whole& expected,
             ProcessGroup& group) {
  const auto own = [&](const Tensor& x) {
    return own_tokens(x, options.order, group.size(), group.rank());
  };
  const Tensor q = learned(own(of.draw(of.heads, "q"))),
               k = learned(own(of.draw(of.kv_heads, "k"))),
               v = learned(own(of.draw(of.kv_heads, "v")));
  const Tensor y = attention(q, k, v, options, group);
  must_be(y.detach().contiguous(), own(expected.y).contiguous(), "y");
  backward(y, own(of.draw(of.heads, "dy")));
  must_be(q.grad().contiguous(), own(expected.dq).contiguous(), "dq");
  must_be(k.grad().contiguous(), own(expected.dk).contiguous(), "dk");
  must_be(v.grad().contiguous(), own(expected.dv).contiguous(), "dv");
}

const std::vector<ContextOptions> all_options = [] {
  std::vector<ContextOptions> all;
  for (const Exchange exchange : {Exchange::all_gather, Exchange::ring, Exchange::ulysses})
    for (const TokenOrder order : {TokenOrder::contiguous, TokenOrder::zigzag})
      all.push_back({exchange, order});
  return all;
}();

}  // namespace

TEST_CASE("context parallel: outputs and gradients are those of one process, on 1 to 4 ranks") {
  for (const std::int64_t kv_heads : {12, 4, 1}) {
    const Case of{.kv_heads = kv_heads};
    const Whole expected = whole(of);
    for (const int ranks : {1, 2, 3, 4})
      for (const ContextOptions& options : all_options) {
        if (options.exchange == Exchange::ulysses && kv_heads % ranks != 0) continue;
        CAPTURE(kv_heads);
        CAPTURE(ranks);
        CAPTURE(name_of(options.exchange));
        CAPTURE(name_of(options.order));
        const auto body = [&](ProcessGroup& group) { as_rank(of, options, expected, group); };
        if (kv_heads == 12)
          on_every_transport(ranks, body);
        else
          CHECK_NOTHROW(collectives::run_threads(ranks, body));
      }
  }
}

// Blocks of queries are computed 64 at a time: lengths below, at and above it.
TEST_CASE("context parallel: pieces of one token, and of more than a block of queries") {
  for (const std::int64_t tokens : {6, 12, 390, 768}) {
    const Case of{.batch = 1, .heads = 3, .kv_heads = 3, .tokens = tokens, .head_size = 4};
    const Whole expected = whole(of);
    for (const ContextOptions& options : all_options) {
      CAPTURE(tokens);
      CHECK_NOTHROW(collectives::run_threads(
          3, [&](ProcessGroup& group) { as_rank(of, options, expected, group); }));
    }
  }
}

// Blocks whose scores are far apart: the joint sum is that of the larger ones, without overflow.
TEST_CASE("blocks of keys with very different scores are merged exactly") {
  const Case of{.batch = 1, .heads = 1, .kv_heads = 1, .tokens = 8, .head_size = 2};
  Tensor q = of.draw(1, "q").contiguous(), k = of.draw(1, "k").contiguous();
  for (std::int64_t i = 0; i < 8; ++i)
    for (std::int64_t c = 0; c < 2; ++c) {
      q.data<double>()[2 * i + c] = 30;
      k.data<double>()[2 * i + c] = i < 4 ? -40 : 40;  // scores of -1700 and 1700
    }
  const Tensor v = of.draw(1, "v").contiguous(), expected = autograd::causal_attention(q, k, v);
  const auto sum = autograd::empty_attention(q);
  const auto late = [](const Tensor& x) { return x.narrow(2, 4, 4); };
  autograd::add_attention_block(late(q), late(k), late(v), true, {late(sum.y), late(sum.log_sums)});
  autograd::add_attention_block(late(q), k.narrow(2, 0, 4), v.narrow(2, 0, 4), false,
                                {late(sum.y), late(sum.log_sums)});
  must_be(late(sum.y).contiguous(), late(expected).contiguous(), "y of the late queries");
}

TEST_CASE("context parallel in bf16 is as close to fp32 as one process in bf16") {
  const Case of{.batch = 1, .tokens = 96, .head_size = 16};
  const auto in_fp32 = [&](const char* name) {
    const Tensor drawn = of.draw(of.heads, name).contiguous();
    const Tensor x = Tensor::empty(drawn.shape());
    for (std::int64_t i = 0; i < x.elements(); ++i)
      x.data<float>()[i] = static_cast<float>(drawn.data<double>()[i]);
    return autograd::to_compute_dtype(autograd::to_storage_dtype(x, autograd::DType::bf16));
  };
  const Tensor q = in_fp32("q"), k = in_fp32("k"), v = in_fp32("v");
  const Tensor expected = autograd::causal_attention(q, k, v);
  const auto stored = [](const Tensor& x) {
    return autograd::to_storage_dtype(x, autograd::DType::bf16);
  };
  for (const ContextOptions& options : all_options)
    CHECK_NOTHROW(collectives::run_threads(4, [&](ProcessGroup& group) {
      const auto own = [&](const Tensor& x) {
        return own_tokens(x, options.order, group.size(), group.rank());
      };
      const Tensor y = autograd::to_compute_dtype(
          attention(stored(own(q)), stored(own(k)), stored(own(v)), options, group).contiguous());
      const Tensor wanted = own(expected).contiguous();
      for (std::int64_t i = 0; i < y.elements(); ++i)
        require(std::abs(y.data<float>()[i] - wanted.data<float>()[i]) < 0.02,
                "{} {}: element {} is {}, not {}", name_of(options.exchange),
                name_of(options.order), i, y.data<float>()[i], wanted.data<float>()[i]);
    }));
}

// A trace shows how much of the sequence a rank multiplies in each step of the ring.
TEST_CASE("context parallel: the trace of a ring has the counted pairs of each block") {
  const Case of{.batch = 1, .heads = 2, .kv_heads = 2};
  for (const TokenOrder order : {TokenOrder::contiguous, TokenOrder::zigzag})
    CHECK_NOTHROW(collectives::run_threads(4, [&](ProcessGroup& group) {
      const auto own = [&](const char* name) {
        return own_tokens(of.draw(2, name), order, group.size(), group.rank());
      };
      Trace trace;
      const Trace::On on(trace);
      ring_attention(own("q"), own("k"), own("v"), order, group);
      std::vector<std::string> blocks;
      for (const Trace::Span& span : trace.spans())
        if (span.name == "attention to a block") blocks.push_back(span.about);
      const std::size_t steps = order == TokenOrder::zigzag ? 4 : 1 + group.rank();
      require(blocks.size() == steps, "rank {} computes {} blocks", group.rank(), blocks.size());
      const std::int64_t length = of.tokens / piece_count(order, 4);
      for (std::size_t step = 0; step < steps; ++step) {
        const RingStep at = ring_step(order, 4, group.rank(), static_cast<int>(step));
        const std::string expected =
            fmt::format("keys of rank {}, {} pairs", at.keys_of, visible_pairs(at, length));
        require(blocks[step] == expected, "'{}' instead of '{}'", blocks[step], expected);
      }
    }));
}

// S: the numbers of all keys and values. A rank sends (c-1)/c S in forward, and as much in
// backward; a ring sends them twice in backward, with all c blocks of gradients.
TEST_CASE("context parallel sends the bytes of its formula") {
  const Case of{.kv_heads = 4};
  const auto numbers = [&](std::int64_t heads) {
    return static_cast<std::uint64_t>(of.batch * heads * of.tokens * of.head_size);
  };
  const std::uint64_t kv = 2 * numbers(of.kv_heads);
  collectives::GroupOptions fewest_bytes;
  fewest_bytes.algorithms =
      collectives::AlgorithmSelection("all_gather=ring,all_to_all=pairwise,reduce_scatter=ring");
  for (const int ranks : {2, 4})
    for (const ContextOptions& options : all_options) {
      CAPTURE(ranks);
      CAPTURE(name_of(options.exchange));
      const auto c = static_cast<std::uint64_t>(ranks);
      std::uint64_t expected = 0;  // of a rank
      if (options.exchange == Exchange::all_gather) expected = 2 * (c - 1) * kv / c;
      if (options.exchange == Exchange::ring) expected = (2 * (c - 1) + c) * kv / c;
      if (options.exchange == Exchange::ulysses)
        expected = 2 * (c - 1) * (2 * numbers(of.heads) + kv) / c / c;
      CHECK_NOTHROW(collectives::run_threads(
          ranks,
          [&](ProcessGroup& group) {
            const auto own = [&](const Tensor& x) {
              return own_tokens(x, options.order, group.size(), group.rank());
            };
            const Tensor q = learned(own(of.draw(of.heads, "q")));
            const Tensor k = learned(own(of.draw(of.kv_heads, "k")));
            const Tensor v = learned(own(of.draw(of.kv_heads, "v")));
            const auto before = group.traffic().payload_bytes_sent;
            backward(attention(q, k, v, options, group), own(of.draw(of.heads, "dy")));
            const auto sent = group.traffic().payload_bytes_sent - before;
            require(sent == 8 * expected, "rank {} sends {} bytes, not {}", group.rank(), sent,
                    8 * expected);
          },
          fewest_bytes));
    }
}
