#include "planning/formulas/work.hpp"

#include <algorithm>

#include "planning/formulas/parameters.hpp"
#include "planning/formulas/state.hpp"
#include "planning/formulas/symbols.hpp"

namespace ringside::planning {
namespace {

constexpr const char* narayanan = "Narayanan et al. 2021, appendix";

// Kernels of a block, forward. A product has two in backward, any other op one.
//
//     GPT      products: q with k and v, output, both matrices: 4
//              others: two LayerNorms, two dropouts with the residual's addition, bias with GELU: 5
//              scores: two products, mask with softmax, dropout; or one fused attention
//     Llama    products: q, k, v, output, gate, up, down: 7
//              others: two RMSNorms, two additions, two rotary positions, SwiGLU, attention: 8
//              experts: router, its softmax and choice, rows gathered and added up: 1 and 4, and of
//              each expert gate, up, down and SwiGLU
struct Kernels {
  double products = 0, others = 0;
};
Kernels kernels_of(const Model& model) {
  if (model.kind == Model::Kind::feed_forward) return {2, 0};
  if (model.kind == Model::Kind::gpt) return model.keeps_scores() ? Kernels{6, 7} : Kernels{4, 6};
  if (!model.experts) return {7, 8};
  const double here = model.experts->here();
  return {4 + 1 + 3 * here, 7 + 4 + here};
}

double head_width(const Model& model, const Plan& plan) {
  return std::min({static_cast<double>(plan.rank_sequence() * plan.micro_batch),
                   static_cast<double>(model.d_model),
                   static_cast<double>(model.vocabulary) / tensor_ranks(plan).value()});
}

Quantity micro_batches_of_all(const Plan& plan) {
  return {"n", plan.micro_batches * plan.mesh.data_ranks() * plan.mesh.size(Axis::cp)};
}

}  // namespace

Quantity attention_flops(const Model& model, const Plan& plan) {
  const Quantity s("s", plan.sequence), q("q", model.q_width());
  return 4 * micro_batch_tokens(plan) * s * q;
}

Term block_forward_flops(const Model& model, const Plan& plan) {
  const Quantity products = 2 * micro_batch_tokens(plan) * active_matrices(model);
  return {"F_block", "forward of a block, one micro-batch",
          model.heads == 0 ? products : products + attention_flops(model, plan), Unit::flops,
          narayanan};
}

Quantity busiest_forward_flops(const Model& model, const Plan& plan) {
  const Quantity forward = block_forward_flops(model, plan);
  if (plan.busiest_rows() == 1) return forward;
  const Quantity d("d", model.d_model), f("f", model.d_ff), chosen("K", model.per_token()),
      more("imbalance - 1", plan.imbalance - 1);
  return forward + more * 2 * micro_batch_tokens(plan) * chosen * 3 * d * f;
}

Term head_forward_flops(const Model& model, const Plan& plan) {
  const Quantity d("d", model.d_model), vocabulary("V", model.vocabulary);
  return {"F_head", "forward of the head, one micro-batch",
          2 * micro_batch_tokens(plan) * d * vocabulary, Unit::flops, narayanan};
}

Term block_recomputed_flops(const Model& model, const Plan& plan) {
  // Fused attention keeps no scores, so there is nothing to compute again.
  const bool scores = model.keeps_scores();
  Quantity again = 0;
  if (plan.recompute.kind == Recompute::full)
    again = plan.times_again() * block_forward_flops(model, plan);
  if (plan.recompute.kind == Recompute::selective && scores) again = attention_flops(model, plan);
  return {"F_again", "forward that is computed again in backward", again, Unit::flops,
          "Korthikanti et al. 2022, section 5"};
}

Term model_flops(const Model& model, const Plan& plan) {
  const Quantity blocks("L", model.layers);
  return {"F_model", "forward and backward of the model, whole batch",
          3 * micro_batches_of_all(plan) *
              (blocks * block_forward_flops(model, plan) + head_forward_flops(model, plan)),
          Unit::flops, "Korthikanti et al. 2022, appendix A"};
}

Term hardware_flops(const Model& model, const Plan& plan) {
  const Quantity blocks("L", model.layers);
  return {"F_hardware", "the same, with what is computed again",
          micro_batches_of_all(plan) * (blocks * (3 * block_forward_flops(model, plan) +
                                                  block_recomputed_flops(model, plan)) +
                                        3 * head_forward_flops(model, plan)),
          Unit::flops, "Korthikanti et al. 2022, appendix A"};
}

// Of a GPT's scores, a s of them for each token: scale and mask, softmax, and dropout read and
// write them, and dropout writes a mask of one byte. 6 e + 1 bytes, 13 in 16 bits.
Term scores_traffic(const Model& model, const Plan& plan) {
  const Quantity e("e", plan.types.activations), a("a", model.heads), s("s", plan.sequence);
  return {"B_scores", "memory traffic of attention's scores, forward of one token",
          model.keeps_scores() ? (6 * e + 1) * a * s / tensor_ranks(plan) : 0, Unit::bytes,
          "counted op by op in planning/formulas/work.cpp"};
}

// Besides the scores, in bytes per token:
//
//     GPT      two LayerNorms (read, write), two dropouts with the residual's addition (read two,
//              write one, and a mask of one byte): 2 (2 e + 3 e + 1) d = (10 e + 2) d
//              GELU: 2 e f
//     Llama    two RMSNorms and two additions: 10 e d;  rotary positions: 2 e (q + kv)
//              SwiGLU: 3 e f, of K experts K times as much, and 5 e K d to gather a token's rows
//              (read, write) and to add up what K experts say (read, weigh, add)
//              fused attention reads q, k, v and writes its output: e (2 q + 2 kv)
Term block_forward_traffic(const Model& model, const Plan& plan) {
  const Quantity t = tensor_ranks(plan), e("e", plan.types.activations), d("d", model.d_model),
                 f("f", model.d_ff * model.per_token()), q("q", model.q_width()),
                 kv("kv", model.kv_width());
  Quantity whole = 0, divided = 0;
  if (model.kind == Model::Kind::gpt) whole = (10 * e + 2) * d, divided = 2 * e * f;
  if (model.kind == Model::Kind::llama) whole = 10 * e * d, divided = e * (4 * q + 4 * kv + 3 * f);
  if (model.experts) whole = whole + 5 * e * Quantity("K", model.per_token()) * d;
  return {"B_forward", "memory traffic of a block outside of products, forward of one token",
          (plan.sequence_parallel ? (whole + divided) / t : whole + divided / t) +
              scores_traffic(model, plan),
          Unit::bytes, "counted op by op in planning/formulas/work.cpp"};
}

Term block_traffic(const Model& model, const Plan& plan) {
  const Term forward = block_forward_traffic(model, plan);
  const Quantity traffic =
      plan.recompute.kind == Recompute::full        ? (3 + plan.times_again()) * forward
      : plan.recompute.kind == Recompute::selective ? 3 * forward + scores_traffic(model, plan)
                                                    : 3 * forward;
  return {"B_block", "the same, with backward and recomputation, one micro-batch",
          micro_batch_tokens(plan) * traffic, Unit::bytes,
          "backward moves twice what forward does"};
}

Term block_forward_kernels(const Model& model) {
  const Kernels kernels = kernels_of(model);
  return {"K_forward", "kernels of a block, forward",
          Quantity("K_products", kernels.products) + Quantity("K_others", kernels.others),
          Unit::number, "counted op by op in planning/formulas/work.cpp"};
}

Term block_kernels(const Model& model, const Plan& plan) {
  const Kernels kernels = kernels_of(model);
  const Quantity products("K_products", kernels.products), others("K_others", kernels.others);
  Quantity all = 3 * products + 2 * others;
  if (const int again = plan.times_again(); again > 0)
    all = (3 + again) * products + (2 + again) * others;
  if (plan.recompute.kind == Recompute::selective && model.keeps_scores()) all = all + 4;
  return {"K_block", "the same, with backward and recomputation, one micro-batch", all,
          Unit::number, "backward has two products for each of forward"};
}

// Of m micro-batches all but the first add their gradients: a product writes one, and another
// kernel reads it and the sum, and writes the sum. So do PyTorch and Ringside. With fused gradients
// the product itself adds to the sum, while it computes.
Term accumulation_traffic(const Quantity& parameters, const Plan& plan) {
  const Quantity e("e", plan.types.activations), g("e_g", plan.types.gradients),
      m("m", plan.micro_batches), n("N", shards_of(plan).gradients);
  return {"B_sum", "memory traffic of adding up gradients, one micro-batch: the mean of m",
          plan.fused_gradients ? 0 : parameters * (e + 2 * g) * (m - 1) / (m * n), Unit::bytes,
          "read a gradient and the sum, write the sum"};
}

Term optimizer_traffic(const Quantity& parameters, const Types& types, double shards) {
  const Quantity e("e", types.parameters), g("e_g", types.gradients), m("e_m", types.masters()),
      o("e_o", types.moments()), n("N", shards);
  return {"B_step", "memory traffic of the optimizer's step",
          parameters * (g + 2 * (m + o) + e) / n, Unit::bytes,
          "read the gradient; read and write masters and moments; write the parameter"};
}

double block_width(const Model& model, const Plan& plan) {
  const double t = tensor_ranks(plan).value();
  double width = std::min({micro_batch_tokens(plan).value(), static_cast<double>(model.d_model),
                           static_cast<double>(model.d_ff) / t});
  if (model.heads > 0) width = std::min(width, static_cast<double>(model.q_width()) / t);
  return width;
}

Quantity product_seconds(const Quantity& flops, double width, const Plan& plan,
                         const Machine& machine) {
  const Quantity peak("C", machine.peak), efficiency("eta", machine.matmul_efficiency_at(width));
  return flops / (tensor_ranks(plan) * peak * efficiency);
}

Quantity memory_seconds(const Quantity& bytes, const Machine& machine) {
  const Quantity bandwidth("W_mem", machine.memory_bandwidth),
      reached("eta_mem", machine.memory_efficiency);
  return bytes / (bandwidth * reached);
}

Quantity kernel_seconds(const Quantity& kernels, const Machine& machine) {
  return kernels * Quantity("t_kernel", machine.kernel_seconds);
}

Term block_seconds(const Model& model, const Plan& plan, const Machine& machine) {
  const Quantity forward = busiest_forward_flops(model, plan),
                 again = plan.busiest_rows() == 1 ? Quantity(block_recomputed_flops(model, plan))
                                                  : plan.times_again() * forward,
                 flops = 3 * forward + again;
  return {"t_block", "forward and backward of a block, one micro-batch",
          product_seconds(flops, block_width(model, plan), plan, machine) +
              memory_seconds(block_traffic(model, plan), machine) +
              kernel_seconds(block_kernels(model, plan), machine),
          Unit::seconds,
          "products at eta of the peak, other ops at the memory's bandwidth, and a fixed cost of "
          "each kernel"};
}

// fp32 logits are written by the product, read twice for the loss, and their gradient is written
// and read twice. Three products, the norm, and the loss: 5 kernels and the norm's backward.
Term head_seconds(const Model& model, const Plan& plan, const Machine& machine) {
  const Quantity logits = micro_batch_tokens(plan) * Quantity("V", model.vocabulary);
  return {
      "t_head", "forward and backward of the head, one micro-batch",
      product_seconds(3 * head_forward_flops(model, plan), head_width(model, plan), plan, machine) +
          memory_seconds(24 * logits / tensor_ranks(plan), machine) + kernel_seconds(6, machine),
      Unit::seconds, "as of a block; six passes over fp32 logits"};
}

Term optimizer_seconds(const Quantity& bytes, const Machine& machine) {
  return {"t_step", "the optimizer's step", memory_seconds(bytes, machine), Unit::seconds,
          "limited by the memory's bandwidth"};
}

Term model_flops_utilization(const Quantity& flops, const Quantity& seconds, double devices,
                             const Machine& machine) {
  const Quantity n("N", devices), peak("C", machine.peak);
  return {"MFU", "model FLOPs utilization", flops / (n * peak * seconds), Unit::share,
          "Chowdhery et al. 2022 (PaLM), appendix B"};
}

}  // namespace ringside::planning
