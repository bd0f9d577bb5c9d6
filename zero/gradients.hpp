// ZeRO, stage 2: gradients are shared out too.
//
// As state.hpp, but of the gradients each rank keeps only what it updates with, 1/p. A bucket's
// whole gradients exist from the first that backward writes until their reduce-scatter is done
// (gradient_shards.hpp):
//
//     backward        | layer 4 | layer 3 | layer 2 | layer 1 |
//     bucket 0         [■■■■■■■■■■■■■■■■]                        memory: fetched ... freed
//     bucket 1                   [■■■■■■■■■■■■■■■■]
//     bucket 2                             [■■■■■■■■■■■■■■■■■■]
//     this rank's shard of all    ▁▁▁▁▁▁▁▁▁▂▂▂▂▂▂▂▂▂▃▃▃▃▃▃▃▃▃▃▃▃▃▃
//
// On the wire the same as stage 1. Micro-batches: each is reduce-scattered, and their shards are
// added up. To keep gradients whole between them, as ddp/ and stage 1 do, would save calls and cost
// all that this stage saves.
//
// Source: Rajbhandari et al., SC 2020, section 5.2.
#pragma once

#include "ddp/bucketed.hpp"
#include "zero/gradient_shards.hpp"

namespace ringside::zero {

class ShardedGradients {
 public:
  // Makes all ranks' parameters and buffers those of rank 0, and moves the parameters into flat
  // memory. `module` and `group` must outlive this.
  ShardedGradients(const autograd::Module& module, collectives::ProcessGroup& group,
                   double bucket_mb = ddp::Bucketed::default_bucket_mb);

  // As ShardedState's.
  std::unique_ptr<PartitionedOptimizer> make_optimizer(std::vector<autograd::ParameterGroup> groups,
                                                       PartitionedOptimizer::Make make);

  // Call after backward, on every rank: waits until this rank's slice of every gradient is the mean
  // over all ranks. Parameters have no grad() of their own. As Bucketed, it names a gradient that
  // is missing on some ranks only.
  void finish() { gradients_->finish(); }

  // For all but the last micro-batch of a step: its gradients, too, are averaged, and added up with
  // those of the next.
  [[nodiscard]] MicroBatch no_sync() { return MicroBatch(*gradients_); }

  // Whole tensors on rank 0, one after the other. Every rank must call it.
  void visit_parameters(const SeeTensor& see) const {
    zero::visit_parameters(named_, plan_, slices_, group_, see);
  }
  void visit_gradients(const SeeTensor& see) const {
    zero::visit_gradients(named_, plan_, slices_, gradients_->has_gradient(), group_, see);
  }

  const GradientShards& gradients() const { return *gradients_; }
  const ShardPlan& plan() const { return plan_; }

 private:
  std::vector<autograd::NamedTensor> named_;
  collectives::ProcessGroup& group_;
  ShardPlan plan_;
  std::vector<autograd::Tensor> parameters_;  // [bucket]: end to end, filled up
  Slices slices_;
  std::unique_ptr<GradientShards> gradients_;
};

}  // namespace ringside::zero
