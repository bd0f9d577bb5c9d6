#include "planning/formulas/activations.hpp"

#include <algorithm>

#include "autograd/ops/ops.hpp"
#include "parallel/pipeline/proof/formulas.hpp"
#include "planning/formulas/devices.hpp"
#include "planning/formulas/parameters.hpp"
#include "planning/formulas/symbols.hpp"

namespace ringside::planning {
namespace {

constexpr const char* korthikanti = "Korthikanti et al. 2022";

// The symbols of this file.
struct Symbols {
  Symbols(const Model& model, const Plan& plan)
      : s("s", plan.sequence),
        b("b", plan.micro_batch),
        h("h", model.d_model),
        a("a", model.heads),
        t(tensor_ranks(plan)),
        tokens(micro_batch_tokens(plan)),
        e("e", plan.types.activations),
        f(model.experts ? "K f" : "f", model.d_ff * model.per_token()),
        rows(model.experts ? "K h" : "0", model.experts ? model.per_token() * model.d_model : 0),
        q("q", model.q_width()),
        kv("kv", std::max(model.kv_width(), model.head_size * plan.mesh.size(Axis::tp))),
        vocabulary("V", model.vocabulary),
        stream(plan.sequence_parallel ? h / t : h) {}
  // rows: numbers of a token's rows for K experts; f: inside these. Both 0 and f without experts.
  Quantity s, b, h, a, t, tokens, e, f, rows, q, kv, vocabulary;
  Quantity stream;  // numbers of the residual stream for each token of the sequence
};

// Blocks that one rank recomputes together.
std::int64_t group_size(const Model& model, const Plan& plan) {
  return plan.group_of(model.layers / plan.mesh.size(Axis::pp) /
                       std::max<std::int64_t>(1, plan.chunks));
}

Quantity in_groups(const Quantity& input, const Model& model, const Plan& plan) {
  const std::int64_t group = group_size(model, plan);
  return group == 1 ? input : input / Quantity("K_1", static_cast<double>(group));
}

// A GPT's block in 16 bits, with dropout. Each 5 a s / h is three tensors of scores: softmax's
// output, dropout's mask and its output (section 4.1). Fused attention keeps none of them, as
// selective recomputation does.
Term gpt_block(const Symbols& x, const Model& model, const Plan& plan) {
  const Quantity &s = x.s, &b = x.b, &h = x.h, &a = x.a, &t = x.t;
  const bool parallel = plan.sequence_parallel;
  const auto term = [&](const Quantity& bytes, const char* where) {
    return Term{"A_block", "activations of a block, for one micro-batch", bytes, Unit::bytes,
                fmt::format("{}, {}", korthikanti, where)};
  };
  const bool fused = plan.recompute.kind == Recompute::none && !model.keeps_scores();
  switch (fused ? Recompute::selective : plan.recompute.kind) {
    case Recompute::none:
      if (parallel) return term(s * b * h * (34 + 5 * a * s / h) / t, "equation 4");
      return term(s * b * h * (10 + 24 / t + 5 * a * s / (h * t)), "equation 2");
    case Recompute::selective:
      if (parallel) return term(34 * s * b * h / t, "equation 6");
      return term(s * b * h * (10 + 24 / t), "table 2");
    case Recompute::full:
      break;
  }
  if (parallel)
    return term(in_groups(2 * s * b * h / t, model, plan),
                "section 5, divided by sequence parallel");
  return term(in_groups(2 * s * b * h, model, plan), "table 2");
}

// A block of transformer/layers.cpp. Attention is fused and keeps no scores, so selective
// recomputation has nothing to drop. Kept for each token: the block's input and the sum before the
// second norm, both in the residual stream; both normed inputs; q, k, v and the output of
// attention; gate, up and their product; one number per head and per norm. With experts of equal
// load: K rows for the experts and K outputs, K times gate, up and product; logits of the router.
// With norms of heads: q and k before them, and a number per head.
//
// Context parallel with all_gather keeps the keys and values of all ranks. Sequence parallel
// divides the residual stream. Ringside keeps the normed inputs whole; others gather them again in
// backward.
Term llama_block(const Symbols& x, const Model& model, const Plan& plan) {
  const Quantity &h = x.h, &q = x.q, &kv = x.kv, &f = x.f, &a = x.a, &t = x.t;
  const char* const source = "counted op by op in planning/formulas/activations.cpp";
  if (plan.recompute.kind == Recompute::full)
    return {"A_block", "activations of a block, for one micro-batch: its share of a group's input",
            in_groups(x.tokens * x.e * x.stream, model, plan), Unit::bytes, source};
  const bool gathers = plan.context.exchange == context_parallel::Exchange::all_gather &&
                       plan.mesh.size(Axis::cp) > 1;
  const Quantity c("c", gathers ? plan.mesh.size(Axis::cp) : 1);
  Quantity divided = 2 * q + (gathers ? 2 * c * kv : 2 * kv) + 3 * f + a;
  if (model.qk_norm) {
    const Quantity head("d_head", model.head_size);
    divided = divided + (q + kv) * (1 + 1 / head);
  }
  const Quantity each = !plan.sequence_parallel ? 4 * h + 2 + divided / t
                        : model.own             ? 2 * h + 2 + (2 * h + divided) / t
                                                : (4 * h + 2 + divided) / t;
  if (!model.experts)
    return {"A_block", "activations of a block, for one micro-batch", x.tokens * x.e * each,
            Unit::bytes, source};
  const Quantity routed("E", model.experts->routed), chosen("K", model.per_token());
  return {"A_block", "activations of a block, for one micro-batch, with equal load of the experts",
          x.tokens * (x.e * (each + 2 * x.rows + routed) + 20 * chosen), Unit::bytes, source};
}

Quantity rows_of_logits(const Model& model, const Plan& plan) {
  return {"R", autograd::cross_entropy_rows(plan.rank_sequence() * plan.micro_batch,
                                            model.vocabulary, plan.device)};
}

}  // namespace

Term block_activations(const Model& model, const Plan& plan) {
  const Symbols x(model, plan);
  if (model.kind == Model::Kind::gpt) return gpt_block(x, model, plan);
  if (model.kind == Model::Kind::llama) return llama_block(x, model, plan);
  const Quantity d("d", model.d_model);
  if (plan.recompute.kind == Recompute::full)
    return {"A_block", "activations of a block, for one micro-batch: its input", x.tokens * x.e * d,
            Unit::bytes, "Stanford CS336, assignment 2"};
  return feed_forward_activations(x.tokens, d, x.f, x.e, x.t);
}

// Kept by our I for each token: both normed inputs and the gradients of both halves' outputs, all
// whole; q, k, v, attention's output and their gradients; the product of gate and up, and the
// gradients of gate and up. Others keep all of the block's activations.
Term deferred_activations(const Model& model, const Plan& plan) {
  const Symbols x(model, plan);
  Plan kept = plan;
  kept.recompute = Recompute::none;
  Quantity bytes = block_activations(model, kept);
  if (model.own) bytes = x.tokens * x.e * (4 * x.h + (2 * x.q + 2 * x.kv + 3 * x.f) / x.t);
  return {"A_W", "what W needs of a block, for one micro-batch", bytes, Unit::bytes,
          "autograd/engine/deferred_gradients.hpp"};
}

// Without history a block's forward frees what it no longer needs.
Quantity forward_memory(const Model& model, const Plan& plan) {
  const Symbols x(model, plan);
  return x.tokens * x.e *
         (plan.recompute.kind == Recompute::full ? 3 * x.h + 2 * x.rows + 3 * x.f / x.t : x.h);
}

// In the feed-forward part backward holds for each token the gradient of the block's output and:
//
//     down          the product's gradient, and the gradient of the matrix
//     gate and up   their gradients; I also keeps the product, which W needs
//     normed input  one gradient by gate, one by up; gate and up are then freed
//
// Experts hold the gradients of their rows besides, before and behind them.
// Sequence parallel divides the first, and gathers it for down alone. In a pipeline the gradient
// that the next stage sent is there, too. For other kinds of models the papers do not count these.
Term working_memory(const Model& model, const Plan& plan, bool is_at_head, Backward kind) {
  const Symbols x(model, plan);
  const char* const source = "counted op by op in planning/formulas/activations.cpp";
  Quantity backward = 0;
  if (model.kind == Model::Kind::llama) {
    const Quantity T = x.tokens, h = x.h, f = x.f / x.t, s = x.stream, rows = 2 * x.rows;
    const bool divided = plan.sequence_parallel, is_input = kind == Backward::input;
    const Quantity gathered = divided ? s + h : h;  // at down, and in I until W
    const Quantity down = T * (gathered + rows + f);
    const Quantity at_down = kind == Backward::later ? down + down_projection(model, x.t) : down;
    const Quantity at_gates = is_input ? T * (gathered + rows + 3 * f) : T * (s + rows + 2 * f);
    const Quantity at_input = T * (divided ? 2 * h + s : 3 * h);
    const Quantity in_block = max(max(at_down, at_gates), at_input);
    backward = x.e * (is_at_head ? in_block : in_block + x.tokens * x.stream);
  }
  const char* const what = "gradients within a block, while backward runs through it";
  if (plan.recompute.kind != Recompute::full)
    return {"A_working", what, backward, Unit::bytes, source};
  Plan kept = plan;
  kept.recompute = Recompute::none;
  const Term whole = block_activations(model, kept);
  const std::int64_t group = group_size(model, plan), inner = plan.recompute.groups.inner;
  if (group == 1)
    return {"A_working", "one block that is computed again, and its gradients", whole + backward,
            Unit::bytes, source};
  const Quantity outer("K_1", static_cast<double>(group)),
      again("K", static_cast<double>(inner > 0 ? std::min(inner, group) : group));
  Quantity bytes = again * whole + backward;
  if (inner > 0) bytes = bytes + outer / again * x.tokens * x.e * x.stream;
  return {"A_working", "a group of blocks that is computed again, and the gradients of one", bytes,
          Unit::bytes, "Chen et al. 2016, section 4"};
}

Term head_activations(const Model& model, const Plan& plan) {
  const Symbols x(model, plan);
  if (model.vocabulary == 0)
    return {"A_head", "activations at the head: none", 0, Unit::bytes, model.source};
  if (model.kind == Model::Kind::gpt)
    return {"A_head", "activations at the head: last norm, its output, fp32 logits",
            4 * x.s * x.b * x.h * (1 + x.vocabulary / x.h) / x.t, Unit::bytes,
            fmt::format("{}, section 4.3", korthikanti)};
  // Ringside computes some rows of logits at a time, and the gradient of the head's matrix with
  // them.
  return {"A_head", "activations at the head: rows of logits, last norm, the head's gradient",
          x.e * ((rows_of_logits(model, plan) + x.h) * x.vocabulary / x.t + 3 * x.tokens * x.h),
          Unit::bytes, "autograd/ops/losses/linear_cross_entropy.cpp"};
}

Term kept_head(const Model& model, const Plan& plan) {
  const Symbols x(model, plan);
  return {"A_kept",
          "kept at the head of a micro-batch: gradients of its matrix and input; the norm's input",
          model.kind == Model::Kind::llama
              ? x.e * (x.h * x.vocabulary / x.t + x.tokens * (x.h + x.stream))
              : 0,
          Unit::bytes, "autograd/ops/losses/linear_cross_entropy.cpp"};
}

// The CPU converts values to fp32 while an op computes: the largest such copies are those of the
// head's matrix, its gradient, and the rows of logits. A device multiplies bf16: its logits are
// fp32 and their gradient is bf16, and the gradient of the matrix is fp32, with a copy in bf16.
Term converted_head(const Model& model, const Plan& plan) {
  const Symbols x(model, plan);
  const Quantity matrix = x.h * x.vocabulary / x.t,
                 logits = rows_of_logits(model, plan) * x.vocabulary / x.t;
  return {"A_fp32", "fp32 copies of bf16 at the head",
          plan.device == autograd::Device::cpu ? 6 * matrix + 2 * logits : 4 * matrix + 4 * logits,
          Unit::bytes, "autograd/ops/losses/linear_cross_entropy.cpp"};
}

Term embedding_activations(const Model& model, const Plan& plan) {
  const Symbols x(model, plan);
  return {"A_embedding", "at the embedding: the gradients of its matrix and of its output",
          x.e * (x.h * x.vocabulary / x.t + 3 * x.tokens * x.h), Unit::bytes,
          "counted op by op in planning/formulas/activations.cpp"};
}

// Counted on the schedule, which has the formula of the papers beside it.
Term blocks_in_flight(const Plan& plan, const PipelinePart& part) {
  const Quantity blocks("L_stage", part.blocks), passes("c", part.blocks_in_flight / part.blocks);
  const std::string formula(pipeline_parallel::in_flight_formula(plan.schedule));
  return {"L_held", "blocks whose activations the stage holds", blocks * passes, Unit::number,
          fmt::format("c forward passes of the rank, counted on the schedule{}",
                      formula.empty() ? "" : "; of its stages " + formula)};
}

}  // namespace ringside::planning
