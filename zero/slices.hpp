// This rank's slices of all parameters, and an optimizer over them: what the stages that cut flat
// memory evenly have in common.
#pragma once

#include <functional>
#include <vector>

#include "zero/partitioned.hpp"
#include "zero/shard_plan.hpp"

namespace ringside::zero {

// [bucket][entry]: a leaf that looks at this rank's part of the parameter, as a row of numbers;
// undefined where that is none. Its gradient is this rank's part of the gradient, averaged over all
// ranks.
using Slices = std::vector<std::vector<autograd::Tensor>>;

// Lays the parameters of a bucket end to end, in new memory that is filled up with zeros; from then
// on they are views into it.
autograd::Tensor move_into_flat_memory(const ShardPlan& plan, std::size_t bucket);

// The second half of an all-reduce: makes parameters, [bucket] as above, whole on every rank from
// the blocks that are each rank's.
void gather_parameters(const ShardPlan& plan, const std::vector<autograd::Tensor>& parameters,
                       collectives::ProcessGroup& group);

// This rank's blocks of flat memory, [bucket].
std::vector<autograd::Tensor> shards_of(const ShardPlan& plan,
                                        const std::vector<autograd::Tensor>& flats);

// Those of `shards`, one for each bucket.
Slices slices_of(const ShardPlan& plan, const std::vector<autograd::Tensor>& shards);

// Brings every parameter of `named` together on rank 0, in that order, for `see`; with `gradients`,
// their gradients, of those that `has_gradient` says are there. What is in no bucket (frozen) is
// whole on every rank.
void visit_parameters(const std::vector<autograd::NamedTensor>& named, const ShardPlan& plan,
                      const Slices& slices, collectives::ProcessGroup& group, const SeeTensor& see);
void visit_gradients(const std::vector<autograd::NamedTensor>& named, const ShardPlan& plan,
                     const Slices& slices, const std::vector<std::vector<bool>>& has_gradient,
                     collectives::ProcessGroup& group, const SeeTensor& see);

// Its share of each parameter is this rank's slice.
class SliceOptimizer final : public PartitionedOptimizer {
 public:
  // `plan` and `group` must outlive this. `after_step` is called on every rank when its slices have
  // been updated.
  SliceOptimizer(std::vector<autograd::ParameterGroup> groups, collectives::ProcessGroup& group,
                 Make make, const ShardPlan& plan, Slices slices, std::function<void()> after_step);

  void step() override;
  std::vector<Part> parts(std::size_t g, std::size_t i) const override;

 private:
  std::vector<autograd::NamedTensor> share_of(const autograd::ParameterGroup& added) override;
  ShardPlan::Place place_of(const autograd::NamedTensor& parameter) const;

  const ShardPlan& plan_;
  Slices slices_;
  std::function<void()> after_step_;
};

}  // namespace ringside::zero
