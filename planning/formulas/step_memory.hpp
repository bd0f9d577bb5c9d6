// StepMemory: what a rank holds at every moment of a step beside parameters and the optimizer's
// state.
#pragma once

#include <vector>

#include "planning/plan.hpp"
#include "planning/quantity.hpp"

namespace ringside::planning {

class StepMemory {
 public:
  // All three must outlive it. The plan must be valid for the model, whose blocks are known.
  StepMemory(const Model& model, const Plan& plan, const PipelinePart& part);

  // Activations: of the blocks in flight; and what else there is at the moment.
  Quantity of_blocks(const Moment& at) const;
  Quantity working(const Moment& at) const;

  // The moment with the most activations.
  const Moment& most_activations() const;
  // The most of activations, gradients and gathered parameters together, in bytes.
  double most() const;

 private:
  double activations(const Moment& at) const;
  double gradients(const Moment& at) const;
  double under_way(const Moment& at) const;
  Quantity in_computation(const Moment& at) const;

  const Model& model_;
  const Plan& plan_;
  const PipelinePart& part_;
  // Ringside frees gradients after a step, unless they lie in buckets: the first backward then
  // starts without any, when most activations are in flight.
  const bool gradients_grow_;
  const Term block_, deferred_, kept_head_;
  double parameters_of_block_, matrix_of_vocabulary_, down_projection_, all_parameters_;
  // What an action computes with, by its kind, whether it is at the head and whether it makes the
  // gradients: the formulas of a few moments, each asked for a thousand times.
  std::vector<double> computing_;
};

}  // namespace ringside::planning
