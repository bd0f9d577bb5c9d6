#include "planning/formulas/activations.hpp"

#include <algorithm>

#include "autograd/ops/ops.hpp"
#include "planning/formulas/devices.hpp"

namespace ringside::planning {
namespace {

constexpr const char* korthikanti = "Korthikanti et al. 2022";

// The symbols of this file.
struct Symbols {
  Symbols(const Model& model, const Plan& plan)
      : s("s", static_cast<double>(plan.sequence)),
        b("b", static_cast<double>(plan.micro_batch)),
        h("h", static_cast<double>(model.d_model)),
        a("a", static_cast<double>(model.heads)),
        t("t", static_cast<double>(plan.mesh.size("tp"))),
        tokens("T", static_cast<double>(plan.sequence * plan.micro_batch)),
        e("e", plan.types.activations),
        f("f", static_cast<double>(model.d_ff)),
        q("q", static_cast<double>(model.q_width())),
        kv("kv",
           static_cast<double>(std::max(model.kv_width(), model.head_size * plan.mesh.size("tp")))),
        vocabulary("V", static_cast<double>(model.vocabulary)) {}
  Quantity s, b, h, a, t, tokens, e, f, q, kv, vocabulary;
};

// A GPT's block in 16 bits, with dropout and without fused attention. Each 5 a s / h is three
// tensors of scores: softmax's output, dropout's mask and its output (section 4.1).
Term gpt_block(const Symbols& x, const Plan& plan) {
  const Quantity &s = x.s, &b = x.b, &h = x.h, &a = x.a, &t = x.t;
  const bool parallel = plan.sequence_parallel;
  const auto term = [&](const Quantity& bytes, const char* where) {
    return Term{"A_block", "activations of a block, for one micro-batch", bytes, Unit::bytes,
                fmt::format("{}, {}", korthikanti, where)};
  };
  switch (plan.recompute) {
    case Recompute::none:
      if (parallel) return term(s * b * h * (34 + 5 * a * s / h) / t, "equation 4");
      return term(s * b * h * (10 + 24 / t + 5 * a * s / (h * t)), "equation 2");
    case Recompute::selective:
      if (parallel) return term(34 * s * b * h / t, "equation 6");
      return term(s * b * h * (10 + 24 / t), "table 2");
    case Recompute::full:
      break;
  }
  if (parallel) return term(2 * s * b * h / t, "section 5, divided by sequence parallel");
  return term(2 * s * b * h, "table 2");
}

// A block of transformer/layers.cpp. Attention is fused and keeps no scores, so selective
// recomputation has nothing to drop. Kept for each token: the block's input, both normed inputs and
// the sum before the second norm; q, k, v and the output of attention; gate, up and their product;
// one number per head and per norm.
Term llama_block(const Symbols& x, const Plan& plan) {
  const Quantity &h = x.h, &q = x.q, &kv = x.kv, &f = x.f, &a = x.a, &t = x.t;
  const char* const source = "transformer/memory.cpp";
  if (plan.recompute == Recompute::full)
    return {"A_block", "activations of a block, for one micro-batch: its input",
            plan.sequence_parallel ? x.tokens * x.e * h / t : x.tokens * x.e * h, Unit::bytes,
            source};
  const Quantity divided = 2 * q + 2 * kv + 3 * f + a;
  if (plan.sequence_parallel)
    return {"A_block", "activations of a block, for one micro-batch",
            x.tokens * x.e * ((4 * h + 2 + divided) / t), Unit::bytes, source};
  return {"A_block", "activations of a block, for one micro-batch",
          x.tokens * x.e * (4 * h + 2 + divided / t), Unit::bytes, source};
}

}  // namespace

Term block_activations(const Model& model, const Plan& plan) {
  const Symbols x(model, plan);
  if (model.kind == Model::Kind::gpt) return gpt_block(x, plan);
  if (model.kind == Model::Kind::llama) return llama_block(x, plan);
  const Quantity d("d", static_cast<double>(model.d_model));
  if (plan.recompute == Recompute::full)
    return {"A_block", "activations of a block, for one micro-batch: its input", x.tokens * x.e * d,
            Unit::bytes, "Stanford CS336, assignment 2"};
  return feed_forward_activations(x.tokens, d, x.f, x.e, x.t);
}

// In the feed-forward part Ringside's backward holds the gradients of the residual stream and of
// the product, and those of gate and up or of the down projection's matrix. For the other kinds the
// papers do not count these.
Term working_memory(const Model& model, const Plan& plan) {
  const Symbols x(model, plan);
  const Quantity backward =
      model.kind == Model::Kind::llama
          ? x.e * (x.tokens * (x.h + x.f / x.t) + max(x.tokens, x.h) * x.f / x.t)
          : 0;
  const char* const what = "gradients within a block, while backward runs through it";
  if (plan.recompute != Recompute::full)
    return {"A_working", what, backward, Unit::bytes, "transformer/memory.cpp"};
  Plan kept = plan;
  kept.recompute = Recompute::none;
  const Term whole = block_activations(model, kept);
  return {"A_working", "one block that is computed again, and its gradients", whole + backward,
          Unit::bytes, "transformer/memory.cpp"};
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
  const auto rows =
      autograd::cross_entropy_rows(plan.sequence * plan.micro_batch, model.vocabulary);
  return {"A_head", "activations at the head: rows of logits, last norm, the head's gradient",
          x.e * ((Quantity("R", static_cast<double>(rows)) + x.h) * x.vocabulary / x.t +
                 3 * x.tokens * x.h),
          Unit::bytes, "transformer/memory.cpp"};
}

Term blocks_in_flight(const Model& model, const Plan& plan, std::int64_t index) {
  const Quantity p("p", static_cast<double>(plan.mesh.size("pp"))),
      m("m", static_cast<double>(plan.micro_batches)), i("i", static_cast<double>(index)),
      blocks("L_stage", static_cast<double>(blocks_of_stage(model, plan, index)));
  const auto term = [&](const Quantity& count, const char* source) {
    return Term{"L_held", "blocks whose activations the stage holds", count, Unit::number, source};
  };
  switch (plan.schedule) {
    case Schedule::gpipe:
      return term(blocks * m, "Huang et al. 2019 (GPipe), section 2.3");
    case Schedule::one_f_one_b:
      return term(blocks * min(m, p - i), "Narayanan et al. 2021, section 2.2.1");
    case Schedule::zb_h1:
      return term(blocks * min(m, p - i), "Qi et al. 2023 (Zero bubble), section 2.1");
    case Schedule::zb_v:
      return term(blocks * min(m, p), "Qi et al. 2024 (Controllable memory), section 3");
    case Schedule::interleaved:
      break;
  }
  // Rank 0 holds (v + 1) p - 1 chunks, which is L (1 + (p - 1)/(p v)) blocks; each further rank two
  // fewer.
  const Quantity v("v", static_cast<double>(plan.chunks));
  return term(blocks * min(m * v, (v + 1) * p - 1 - 2 * i) / v,
              "Korthikanti et al. 2022, section 4.2.3");
}

}  // namespace ringside::planning
