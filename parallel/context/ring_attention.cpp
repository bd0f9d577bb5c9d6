// Ring attention: keys and values travel round the ranks while each attends to those that are
// there.
//
//     4 ranks, what rank 1 does      compute      meanwhile
//     step 0                         q_1 x kv_1   kv_1 -> rank 2, kv_0 <- rank 0
//     step 1                         q_1 x kv_0   kv_0 -> rank 2, kv_3 <- rank 0
//     step 2                         q_1 x kv_3   kv_3 -> rank 2, kv_2 <- rank 0
//     step 3                         q_1 x kv_2
//
// In backward keys and values travel the same way, and their gradients one step behind: a rank adds
// its part to those that arrive, and passes them on. After c steps they are at home.
//
// Liu, Zaharia and Abbeel, "Ring attention with blockwise transformers for near-infinite context"
// (2023), section 3.
#include <optional>

#include "autograd/engine/node.hpp"
#include "autograd/kernels/copy.hpp"
#include "autograd/ops/attention_block.hpp"
#include "autograd/tensor/layout.hpp"
#include "base/clock.hpp"
#include "base/trace/trace.hpp"
#include "ddp/tensor_collectives.hpp"
#include "parallel/context/attention.hpp"
#include "parallel/neighbour_exchange.hpp"

namespace ringside::context_parallel {

using autograd::Gradients;
using autograd::Node;
using autograd::RunningAttention;
using collectives::ProcessGroup;

namespace {

// `sent` goes to the next rank while `received` arrives from the rank before.
class Passing : public parallel::NeighbourExchange {
 public:
  Passing(const Tensor& sent, const Tensor& received, ProcessGroup& group, const char* label)
      : NeighbourExchange(ddp::buffer_of(sent, label), (group.rank() + 1) % group.size(),
                          ddp::buffer_of(received, label),
                          (group.rank() + group.size() - 1) % group.size(), group, label) {}
};

// A rank's part of one step: views of its tensors, and of what is here of another rank.
struct Block {
  RingStep step;
  std::int64_t length;  // tokens of a piece

  bool empty() const { return step.queries.count == 0; }
  Tensor of_queries(const Tensor& x) const { return pieces(x, step.queries); }
  Tensor of_keys(const Tensor& x) const { return pieces(x, step.keys); }

  // What was computed since `start`, for the trace of this rank.
  void record(Clock::time_point start) const {
    Trace* const trace = Trace::here();
    if (trace == nullptr || empty()) return;
    trace->add(
        {Trace::Track::compute, Trace::Kind::op, "attention to a block", start, Clock::now(),
         fmt::format("keys of rank {}, {} pairs", step.keys_of, visible_pairs(step, length))});
  }

 private:
  Tensor pieces(const Tensor& x, const PieceRange& range) const {
    return x.narrow(2, range.first * length, range.count * length);
  }
};

class Ring {
 public:
  Ring(TokenOrder order, const Tensor& q, ProcessGroup& group)
      : order_(order),
        group_(group),
        length_(q.size(2) * group.size() / piece_count(order, group.size())) {}

  int steps() const { return group_.size(); }
  Block block(int step) const {
    return {ring_step(order_, group_.size(), group_.rank(), step), length_};
  }
  // kv [2, B, H_kv, n, D] of each step in turn, the next one on its way while body(block, keys,
  // values) runs.
  template <class Body>
  void for_each_step(Tensor kv, const char* label, Body body) const {
    for (int step = 0; step < steps(); ++step) {
      Tensor next;
      std::optional<Passing> passing;
      if (step + 1 < steps()) {
        next = autograd::empty_like(kv);
        passing.emplace(kv, next, group_, label);
      }
      const auto start = Clock::now();
      body(block(step), half(kv, 0), half(kv, 1));
      block(step).record(start);
      if (passing) passing->wait();
      passing.reset();
      kv = next;
    }
  }

  static Tensor half(const Tensor& pair, std::int64_t i) {
    const Tensor one = pair.narrow(0, i, 1);
    return one.reshape({pair.size(1), pair.size(2), pair.size(3), pair.size(4)});
  }

 private:
  TokenOrder order_;
  ProcessGroup& group_;
  std::int64_t length_;
};

Tensor pair_of(const Tensor& k, const Tensor& v) {
  const Tensor pair = Tensor::empty({2, k.size(0), k.size(1), k.size(2), k.size(3)}, k.dtype());
  Ring::half(pair, 0).copy_(k);
  Ring::half(pair, 1).copy_(v);
  return pair;
}

// The gradients of kv, of the compute dtype, go round one step behind kv.
class TravellingGradients {
 public:
  TravellingGradients(const Tensor& kv, ProcessGroup& group)
      : group_(group), here_(Tensor::zeros(kv.shape(), autograd::compute_dtype(kv.dtype()))) {}

  // For the part of this rank in a step. It is added to what arrives, so that this need not have
  // arrived when the part is computed.
  Tensor new_part() const { return Tensor::zeros(here_.shape(), here_.dtype()); }

  void add_and_pass_on(const Tensor& part) {
    arrive();
    autograd::accumulate_into(here_, part);
    if (group_.size() == 1) return;
    sent_ = here_;
    here_ = autograd::empty_like(sent_);
    passing_.emplace(sent_, here_, group_, "gradients of keys and values");
  }
  // After as many steps as ranks: this rank's own.
  Tensor at_home() {
    arrive();
    return here_;
  }

 private:
  void arrive() {
    if (passing_) passing_->wait();
    passing_.reset();
  }

  ProcessGroup& group_;
  Tensor here_, sent_;
  std::optional<Passing> passing_;  // the last member: waits before the tensors are freed
};

Gradients backward(const Ring& ring, const Tensor& q, const Tensor& kv, const Tensor& y,
                   const Tensor& log_sums, const Tensor& dy, ProcessGroup& group) {
  const Tensor delta = autograd::attention_delta(y, dy);
  const Tensor dq = Tensor::zeros(q.shape(), autograd::compute_dtype(q.dtype()));
  TravellingGradients gradients(kv, group);
  ring.for_each_step(
      kv, "keys and values again", [&](const Block& block, const Tensor& k, const Tensor& v) {
        const Tensor part = gradients.new_part();
        if (!block.empty())
          autograd::add_attention_block_gradients(
              block.of_queries(q), block.of_keys(k), block.of_keys(v), block.step.causal,
              block.of_queries(log_sums), block.of_queries(delta), block.of_queries(dy),
              block.of_queries(dq), block.of_keys(Ring::half(part, 0)),
              block.of_keys(Ring::half(part, 1)));
        gradients.add_and_pass_on(part);
      });
  const Tensor home = gradients.at_home();
  const auto stored = [&](const Tensor& x) { return autograd::to_storage_dtype(x, q.dtype()); };
  return {stored(dq), stored(Ring::half(home, 0)), stored(Ring::half(home, 1))};
}

}  // namespace

Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, TokenOrder order,
                      ProcessGroup& group) {
  const Tensor own_q = q.detach();
  const RunningAttention sum = autograd::empty_attention(own_q);
  const Tensor kv = pair_of(k.detach(), v.detach());
  const Ring ring(order, own_q, group);
  ring.for_each_step(
      kv, "keys and values", [&](const Block& block, const Tensor& keys, const Tensor& values) {
        if (!block.empty())
          autograd::add_attention_block(block.of_queries(own_q), block.of_keys(keys),
                                        block.of_keys(values), block.step.causal,
                                        {block.of_queries(sum.y), block.of_queries(sum.log_sums)});
      });
  const Tensor y = autograd::to_storage_dtype(sum.y, q.dtype());
  return record("ring_attention", y, {q, k, v},
                [ring, own_q, kv, saved_y = y.detach(), log_sums = sum.log_sums, &group](
                    const Node&, const Tensor& dy) -> Gradients {
                  return backward(ring, own_q, kv, saved_y, log_sums, dy, group);
                });
}

}  // namespace ringside::context_parallel
