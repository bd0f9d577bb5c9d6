// Whole parameters in flat memory, of which each rank updates one shard: what stages 1 and 2 share.
#pragma once

#include <memory>
#include <vector>

#include "autograd/nn/module.hpp"
#include "zero/flat_shard_optimizer.hpp"

namespace ringside::zero {

class FlatParameters {
 public:
  // Copies the parameters and buffers of rank 0 to all ranks, and moves the parameters in `buckets`
  // into flat memory. `module` and `group` must outlive this object.
  FlatParameters(const autograd::Module& module, std::vector<ddp::Bucket> buckets,
                 collectives::ProcessGroup& group);

  // An optimizer whose step() updates this rank's shards and then all-gathers the parameters. This
  // object must outlive it.
  std::unique_ptr<ShardedOptimizer> make_optimizer(std::vector<autograd::ParameterGroup> groups,
                                                   ShardedOptimizer::Make make);

  // Shows whole tensors on rank 0, one after the other. Every rank must call it.
  void visit_parameters(const SeeTensor& see) const;
  void visit_gradients(const HasGradient& has_gradient, const SeeTensor& see) const;

  const ShardLayout& plan() const { return plan_; }
  const ParameterShards& shards() const { return shards_; }

 private:
  void all_gather();

  std::vector<autograd::NamedTensor> named_;
  collectives::ProcessGroup& group_;
  ShardLayout plan_;
  std::vector<autograd::Tensor> flats_;  // [bucket]: parameters end to end, then padding
  ParameterShards shards_;
};

}  // namespace ringside::zero
