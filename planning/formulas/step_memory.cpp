#include "planning/formulas/step_memory.hpp"

#include <algorithm>

#include "planning/formulas/activations.hpp"
#include "planning/formulas/parameters.hpp"
#include "planning/formulas/state.hpp"
#include "planning/formulas/symbols.hpp"
#include "planning/formulas/under_way.hpp"

namespace ringside::planning {
namespace {

using At = Moment::At;
constexpr std::size_t kinds = 6;  // of At

std::size_t index_of(const Moment& at) {
  return static_cast<std::size_t>(at.at) + kinds * (2 * at.is_at_head + at.is_first);
}

}  // namespace

StepMemory::StepMemory(const Model& model, const Plan& plan, const PipelinePart& part)
    : model_(model),
      plan_(plan),
      part_(part),
      gradients_grow_(model.own && plan.state_ranks() == 1 && plan.copies() == 1 &&
                      plan.gradient_copies == 1),
      block_(block_activations(model, plan)),
      deferred_(deferred_activations(model, plan)),
      kept_head_(kept_head(model, plan)),
      parameters_of_block_(whole_block(model, tensor_ranks(plan)).value()),
      matrix_of_vocabulary_(
          model.vocabulary > 0 ? embedding(model).value() / tensor_ranks(plan).value() : 0),
      down_projection_(down_projection(model, tensor_ranks(plan)).value()),
      all_parameters_(stage_parameters(model, tensor_ranks(plan), part).value()),
      computing_(4 * kinds, -1) {
  for (const Moment& at : part.moments)
    if (double& known = computing_[index_of(at)]; known < 0) known = in_computation(at).value();
}

Quantity StepMemory::of_blocks(const Moment& at) const {
  const Quantity held = Quantity("L_held", at.blocks) * block_;
  if (at.deferred_blocks == 0) return held;
  const Quantity deferred = Quantity("L_W", at.deferred_blocks) * deferred_;
  return at.blocks == 0 ? deferred : held + deferred;
}

Quantity StepMemory::in_computation(const Moment& at) const {
  const Quantity e("e", plan_.types.activations);
  const bool is_llama = model_.kind == Model::Kind::llama, remain = gradients_grow_ && at.is_first;
  switch (at.at) {
    case At::forward:
      return is_llama ? forward_memory(model_, plan_) : Quantity(0);
    case At::head: {
      const Quantity head = head_activations(model_, plan_);
      return model_.own && plan_.types.parameters == 2 ? head + converted_head(model_, plan_)
                                                       : head;
    }
    case At::block:
      return working_memory(model_, plan_, at.is_at_head,
                            remain ? Backward::first : Backward::later);
    case At::block_input:
      return working_memory(model_, plan_, at.is_at_head, Backward::input);
    case At::embedding:
      return is_llama ? embedding_activations(model_, plan_).quantity : Quantity(0);
    case At::weights:
      break;
  }
  return is_llama && !remain ? e * down_projection(model_, tensor_ranks(plan_)) : Quantity(0);
}

// With hooks, which reduce gradients, those of head and embedding wait for W as they are.
Quantity StepMemory::working(const Moment& at) const {
  Quantity sum = in_computation(at);
  if (at.heads > 0 && kept_head_.value() > 0) sum = Quantity("m_head", at.heads) * kept_head_ + sum;
  if (const double waiting = at.deferred_heads + at.deferred_embeddings;
      waiting > 0 && model_.own && !gradients_grow_)
    sum = Quantity("m_W", waiting) * Quantity("e", plan_.types.activations) *
              Quantity("P_vocabulary", matrix_of_vocabulary_) +
          sum;
  return sum;
}

double StepMemory::activations(const Moment& at) const {
  double bytes = at.blocks * block_.value() + at.deferred_blocks * deferred_.value() +
                 at.heads * kept_head_.value() + computing_[index_of(at)];
  if (model_.own && !gradients_grow_)
    bytes += (at.deferred_heads + at.deferred_embeddings) * plan_.types.activations *
             matrix_of_vocabulary_;
  return bytes;
}

double StepMemory::gradients(const Moment& at) const {
  const double each = plan_.types.gradients;
  if (!gradients_grow_)
    return each * plan_.gradient_copies * all_parameters_ / shards_of(plan_).gradients;
  const bool tied_here = model_.tied_head && part_.has_embedding && part_.has_head;
  double numbers = at.gradients * parameters_of_block_;
  if (at.has_head_gradient) numbers += matrix_of_vocabulary_ + last_norm(model_).value();
  if (at.has_embedding_gradient && !tied_here) numbers += matrix_of_vocabulary_;
  if (at.is_first && (at.at == At::block || at.at == At::weights)) numbers += down_projection_;
  return each * std::min(numbers, all_parameters_);
}

const Moment& StepMemory::most_activations() const {
  return *std::ranges::max_element(part_.moments, {},
                                   [&](const Moment& at) { return activations(at); });
}

double StepMemory::most() const {
  double most = 0;
  for (const Moment& at : part_.moments)
    most = std::max(most, activations(at) + gradients(at) + under_way(at));
  return most;
}

// Gathered parameters and gradients on their way. A network may be slow, so as many gradients are
// counted as may be there.
double StepMemory::under_way(const Moment& at) const {
  const bool has_units = plan_.shards_parameters(), is_block = at.at == At::block;
  if (!has_units && (plan_.stage() != 2 || plan_.state_ranks() == 1)) return 0;
  const double g = plan_.types.gradients, e = plan_.types.parameters,
               vocabulary = g * matrix_of_vocabulary_;
  // Buckets of several matrices, or of a unit.
  const double bucket = has_units ? g * parameters_of_block_
                                  : std::min(std::max(plan_.bucket_bytes, g * down_projection_),
                                             g * part_.blocks * parameters_of_block_);
  double parameters = 0, gradients = 0;
  if (has_units) {
    if (at.at == At::head) parameters = e * matrix_of_vocabulary_;
    if (at.at == At::forward || at.at == At::weights) parameters = e * parameters_of_block_;
    if (is_block || at.at == At::block_input)
      parameters = e * parameters_of_block_ * (at.is_at_start && part_.blocks > 1 ? 2 : 1);
  }
  // At most two are being reduced, also those of the micro-batch before, and one is filled.
  const bool began = at.gradients > 0 && !at.is_first;
  const double edge = part_.has_embedding || part_.has_head ? std::max(vocabulary, bucket) : bucket;
  if (is_block || at.at == At::weights) {
    if (!at.is_at_start)
      gradients = std::min(3.0, part_.blocks * (has_units ? 1 : 3)) * bucket;
    else
      gradients = (at.is_at_head ? vocabulary : began ? edge : 0) + (began ? 2 : 1) * bucket;
  } else if (at.at == At::embedding) {
    gradients = vocabulary + 2 * bucket;
  } else if (began) {
    gradients = edge + bucket;
  }
  return parameters + gradients;
}

}  // namespace ringside::planning
