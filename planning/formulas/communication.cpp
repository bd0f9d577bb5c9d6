#include "planning/formulas/communication.hpp"

#include "planning/formulas/parameters.hpp"
#include "planning/formulas/state.hpp"
#include "planning/formulas/symbols.hpp"

namespace ringside::planning {
namespace {

constexpr const char* korthikanti = "Korthikanti et al. 2022, section 4.2";

// Bytes of the activations of one micro-batch, between two blocks.
Quantity residual_stream(const Model& model, const Plan& plan) {
  const Quantity d("d", model.d_model), e("e", plan.types.activations);
  return micro_batch_tokens(plan) * d * e;
}

}  // namespace

Term ring_all_reduce_bytes(const Quantity& n, const Quantity& buffer) {
  return {"D_sent", "sent by a rank in a ring all-reduce", 2 * buffer * (n - 1) / n, Unit::bytes,
          "Patarasuk and Yuan 2009, section 3"};
}

Term ring_all_gather_bytes(const Quantity& n, const Quantity& buffer) {
  return {"D_sent", "sent by a rank in a ring all-gather or reduce-scatter", buffer * (n - 1) / n,
          Unit::bytes, "Thakur et al. 2005, section 4"};
}

// A block has two halves (attention, feed-forward), each with a column-parallel and a row-parallel
// product. For each half:
//
//                            all-reduce                  with sequence parallel
//     forward                g: after the row product    all-gather before, reduce-scatter after
//     backward               f: of dx                    the same two, and the input gathered
//                                                        again for dW
//     forward again (full)   g                           all-gather, reduce-scatter
Term tensor_calls_of_block(const Model& model, const Plan& plan) {
  const Quantity halves("halves", model.heads == 0 ? 1 : 2);
  const int again = plan.times_again();
  const double kept = model.own ? 1 : 0;  // inputs that Ringside keeps whole are not gathered again
  const double calls = plan.sequence_parallel ? 5 + 2 * again - kept : 2 + again;
  return {"calls", "tensor-parallel calls of a block, one micro-batch", calls * halves,
          Unit::number, korthikanti};
}

Quantity tensor_rows(const Model& model) {
  if (!model.experts) return 1;
  return {"(1 + K) / 2", (1 + static_cast<double>(model.per_token())) / 2};
}

Term tensor_bytes_of_block(const Model& model, const Plan& plan) {
  const Quantity t = tensor_ranks(plan), calls = tensor_calls_of_block(model, plan),
                 stream = residual_stream(model, plan) * tensor_rows(model);
  return {"D_tp", "sent for a block by a tensor-parallel rank, one micro-batch",
          plan.sequence_parallel ? calls * stream * (t - 1) / t : 2 * calls * stream * (t - 1) / t,
          Unit::bytes, korthikanti};
}

Term tensor_bytes_of_edge(const Model& model, const Plan& plan) {
  const Quantity t = tensor_ranks(plan);
  return {"D_edge", "sent for the embedding's output, and for the head's dx",
          2 * residual_stream(model, plan) * (t - 1) / t, Unit::bytes,
          "Shoeybi et al. 2019 (Megatron-LM), section 3"};
}

Term tensor_bytes_of_cross_entropy(const Plan& plan) {
  const Quantity t = tensor_ranks(plan);
  return {"D_loss", "sent for the cross-entropy: three fp32 numbers a token",
          2 * 12 * micro_batch_tokens(plan) * (t - 1) / t, Unit::bytes,
          "Shoeybi et al. 2019 (Megatron-LM), section 3"};
}

// ZeRO adds up the gradients of the shards that it leaves on a rank.
Term tensor_bytes_of_sums(const Model& model, const Plan& plan, const PipelinePart& part) {
  const Quantity t = tensor_ranks(plan), d("d", model.d_model), blocks("L_stage", part.blocks),
                 gradient("e_g", plan.types.gradients), n("N", shards_of(plan).optimizer);
  Quantity bytes = 0;
  if (plan.sequence_parallel && model.kind == Model::Kind::llama)
    bytes =
        ring_all_reduce_bytes(t, gradient * d * (part.has_head ? 2 * blocks + 1 : 2 * blocks) / n);
  if (model.kv_heads > 0 && plan.mesh.size(Axis::tp) > model.kv_heads) {
    const Quantity share("t / a_kv", t.value() / static_cast<double>(model.kv_heads));
    bytes = bytes + ring_all_reduce_bytes(
                        share, gradient * 2 * d * Quantity("d_head", model.head_size) * blocks / n);
  }
  return {"D_sums", "sent once a step for gradients of norms and of shared heads", bytes,
          Unit::bytes, korthikanti};
}

Term pipeline_bytes_of_sums(const Model& model, const Plan& plan, const PipelinePart& part) {
  Quantity bytes = 0;
  if (model.tied_head && part.has_embedding != part.has_head)
    bytes =
        ring_all_reduce_bytes(2, Quantity("e_g", plan.types.gradients) * embedding(model) /
                                     tensor_ranks(plan) / Quantity("N", shards_of(plan).optimizer));
  return {"D_tied", "sent once a step for the gradient of the tied matrix", bytes, Unit::bytes,
          "Shoeybi et al. 2019 (Megatron-LM)"};
}

// Forward, and backward, where keys travel again in a ring and their gradients with them.
//
//                 forward                            backward
//     all_gather  an all-gather                      a reduce-scatter
//     ring        c - 1 exchanges                    c - 1, and c of gradients
//     ulysses     all-to-all of q, k, v and y        the same four
Term context_calls_of_block(const Plan& plan) {
  const Quantity c("c", plan.mesh.size(Axis::cp));
  const int again = plan.times_again();
  Quantity forward = 1, backward = 1;
  if (plan.context.exchange == context_parallel::Exchange::ring)
    forward = c - 1, backward = 2 * c - 1;
  if (plan.context.exchange == context_parallel::Exchange::ulysses) forward = backward = 4;
  return {"calls", "context-parallel calls of a block, one micro-batch",
          (1 + again) * forward + backward, Unit::number, "parallel/context/attention.hpp"};
}

// Gradients in a ring are of the compute dtype, at least fp32.
Term context_bytes_of_block(const Model& model, const Plan& plan) {
  const Quantity c("c", plan.mesh.size(Axis::cp)),
      t = tensor_ranks(plan), tokens = micro_batch_tokens(plan), e("e", plan.types.activations),
      e_g("e_g", std::max(4.0, plan.types.activations)), q("q", model.q_width()),
      kv("kv", std::max(model.kv_width(), model.head_size * plan.mesh.size(Axis::tp)));
  const Quantity own = 2 * tokens * kv / t;  // numbers of this rank's keys and values
  Quantity forward = (c - 1) * e * own, backward = forward;
  if (plan.context.exchange == context_parallel::Exchange::ring)
    backward = (c - 1) * e * own + c * e_g * own;
  if (plan.context.exchange == context_parallel::Exchange::ulysses)
    forward = backward = (c - 1) / c * e * tokens * (2 * q + 2 * kv) / t;
  const int again = plan.times_again();
  return {"D_cp", "sent for a block by a context-parallel rank, one micro-batch",
          (1 + again) * forward + backward, Unit::bytes, "parallel/context/attention.hpp"};
}

// Forward, and backward: K rows of d numbers for each token go to the experts, and as many come
// back. Before them, every rank tells every other how many rows it has for each of its experts.
Term expert_calls_of_block(const Plan& plan) {
  const Quantity again(3 * plan.times_again());
  return {"calls", "all-to-alls of a block, one micro-batch: counts, rows and outputs; gradients",
          5 + again, Unit::number, "parallel/experts/dispatch.hpp"};
}

Term expert_bytes_of_block(const Model& model, const Plan& plan) {
  const Quantity n("n", plan.mesh.size(Axis::ep)),
      tokens = micro_batch_tokens(plan), e("e", plan.types.activations), d("d", model.d_model),
      chosen("K", model.per_token()), routed("E", model.experts->routed);
  Quantity each = (n - 1) / n * e * tokens * chosen * d;
  const Quantity counts = (n - 1) / n * 8 * routed;
  if (plan.busiest_rows() != 1) each = Quantity("imbalance", plan.imbalance) * each;
  const int again = plan.times_again();
  return {"D_ep", "sent for a block by the busiest expert-parallel rank, one micro-batch",
          (4 + 2 * again) * each + (1 + again) * counts, Unit::bytes,
          "parallel/experts/dispatch.hpp"};
}

Quantity parameters_beside_experts(const Model& model, const Quantity& t,
                                   const PipelinePart& part) {
  const Quantity d("d", model.d_model), f("f", model.d_ff), here("E / n", model.experts->here());
  return stage_parameters(model, t, part) - Quantity("L_stage", part.blocks) * 3 * d * f * here / t;
}

double calls_behind_blocks(double units, double blocks, bool has_head) {
  return std::max(0.0, std::min(units, has_head ? blocks + 1 : blocks) - 1);
}

// The embedding's backward reads no parameters, and the head's gradients are computed in forward; a
// matrix that both share is gathered again.
ShardedUnits sharded_units(const Model& model, const Quantity& t, const PipelinePart& part) {
  const bool has_edges = model.vocabulary > 0, tied = has_edges && model.tied_head && part.has_head;
  const int edges = !has_edges ? 0 : tied ? 1 : part.has_embedding + part.has_head;
  ShardedUnits units;
  units.count = part.blocks + edges, units.again = part.blocks + (tied ? edges : 0);
  units.parameters_again = tied ? stage_parameters(model, t, part)
                                : Quantity("L_stage", part.blocks) * whole_block(model, t);
  const bool has_head = has_edges && part.has_head;
  units.hidden = calls_behind_blocks(units.count, part.blocks, has_head);
  units.hidden_again = calls_behind_blocks(units.again, part.blocks, has_head);
  return units;
}

Term boundary_bytes(const Model& model, const Plan& plan) {
  const Quantity stream = residual_stream(model, plan);
  return {"D_pp", "one message to a neighbouring stage",
          plan.sequence_parallel ? stream / tensor_ranks(plan) : stream, Unit::bytes,
          "Narayanan et al. 2021, section 4.1"};
}

Term link_seconds(const Quantity& messages, const Quantity& bytes, const Level& level) {
  const Quantity alpha("alpha", level.latency), w("W", level.bytes_per_second),
      efficiency("eta", level.efficiency), oversubscribed("o", level.oversubscription);
  const Quantity seconds = bytes / (w * efficiency);
  return {"t_link", "time on " + level.name,
          messages * alpha + (level.oversubscription > 1 ? oversubscribed * seconds : seconds),
          Unit::seconds, "Hockney 1994: latency and bandwidth"};
}

}  // namespace ringside::planning
