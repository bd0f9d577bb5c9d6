// ZeRO stage 2: gradients are sharded too.
//
// As in zero1.hpp each rank updates 1/p of the parameters. Here it also keeps only that 1/p
// of the gradients. The memory of a whole bucket exists from the first gradient that backward
// writes until its reduce-scatter is done (gradient_shards.hpp):
//
//     backward                  | layer 4 | layer 3 | layer 2 | layer 1 |
//     bucket 0                   [================]                          allocated ... freed
//     bucket 1                             [================]
//     bucket 2                                       [==================]
//     this rank's shards         ......................................      kept: 1/p
//
// The bytes on the wire are those of stage 1. With micro-batches there are more: each micro-batch
// is reduce-scattered, and the shards are accumulated. Data parallel and stage 1 accumulate whole
// gradients instead, and communicate once a step; but that memory is what stage 2 saves.
//
// Source: Rajbhandari et al., SC 2020, section 5.2.
#pragma once

#include <memory>
#include <vector>

#include "zero/flat_parameters.hpp"
#include "zero/gradient_shards.hpp"

namespace ringside::zero {

class Zero2 {
 public:
  // Copies the parameters and buffers of rank 0 to all ranks, and moves the parameters into flat
  // memory. `module` and `group` must outlive this object.
  Zero2(const autograd::Module& module, collectives::ProcessGroup& group,
        double bucket_mb = ddp::BucketQueue::default_bucket_mb, const ddp::Alone& alone = {})
      : parameters_(module, ddp::plan_buckets(module, bucket_mb, alone), group),
        gradients_(parameters_.plan(), group, parameters_.shards()) {}

  // An optimizer whose step() updates this rank's shards and then all-gathers the parameters. This
  // object must outlive it.
  std::unique_ptr<ShardedOptimizer> make_optimizer(std::vector<autograd::ParameterGroup> groups,
                                                   ShardedOptimizer::Make make) {
    return parameters_.make_optimizer(std::move(groups), std::move(make));
  }

  // Waits until this rank's shard of every gradient is the mean over all ranks. Every rank calls it
  // after backward. parameter.grad() is undefined afterwards: only the shards have gradients. If
  // only some ranks have a gradient, it throws Error, as Bucketed does.
  void finish() { gradients_.finish(); }

  // For all but the last micro-batch of a step. Its gradients are reduce-scattered like those of
  // the last, and accumulated.
  [[nodiscard]] MicroBatch no_sync() { return MicroBatch(gradients_); }

  // Shows whole tensors on rank 0, one after the other. Every rank must call it. Gradients are
  // those of the last finish().
  void visit_parameters(const SeeTensor& see) const { parameters_.visit_parameters(see); }
  void visit_gradients(const SeeTensor& see) const {
    parameters_.visit_gradients(gradients_.had_gradient(), see);
  }

  const GradientShards& gradients() const { return gradients_; }
  const ShardLayout& plan() const { return parameters_.plan(); }

 private:
  FlatParameters parameters_;
  GradientShards gradients_;
};

}  // namespace ringside::zero
