// ZeRO stage 1, second version: each rank updates an equal share of flat memory, and keeps the
// optimizer state of that share. (Megatron-LM's distributed optimizer.)
//
// An all-reduce is a reduce-scatter followed by an all-gather. After the reduce-scatter, a rank
// holds the mean of 1/p of the gradients, which is enough to update 1/p of the parameters. So the
// optimizer steps there, and the all-gather carries parameters instead of gradients:
//
//     ddp/bucketed      reduce-scatter ---- all-gather ---- step (all of it, on every rank)
//     stage 1           reduce-scatter ---- step (1/p) ---- all-gather
//
//     rank              0                            1
//     gradients      [ a   | b:.. ][ ..b | c ]    [ a   | b:.. ][ ..b | c ]    whole, in buckets
//     averaged       [ ########## ]                             [ ####### ]    after reduce-scatter
//     state          [ ########## ]                             [ ####### ]
//     parameters     [ ########## ][ <------ ]    [ --------> ][ ####### ]     after all-gather
//
// On the wire for each rank: (p-1)/p of the gradients' bytes and (p-1)/p of the parameters'. This
// is as much as data parallel, 2 (p-1)/p.
//
// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models", SC 2020, sections 5.1 and 7.1.
#pragma once

#include <memory>
#include <vector>

#include "ddp/gradient_buckets.hpp"
#include "zero/flat_parameters.hpp"

namespace ringside::zero {

class Zero1 : public ddp::GradientBuckets {
 public:
  // Copies the parameters and buffers of rank 0 to all ranks, and moves parameters and gradients
  // into flat memory. `module` and `group` must outlive this object.
  Zero1(const autograd::Module& module, collectives::ProcessGroup& group,
        double bucket_mb = default_bucket_mb, const ddp::Alone& alone = {});

  // An optimizer whose step() updates this rank's shards and then all-gathers the parameters. This
  // object must outlive it.
  std::unique_ptr<ShardedOptimizer> make_optimizer(std::vector<autograd::ParameterGroup> groups,
                                                   ShardedOptimizer::Make make) {
    return parameters_.make_optimizer(std::move(groups), std::move(make));
  }

  // Waits until this rank's shard of every gradient is the mean over all ranks. Every rank calls it
  // after backward. In the rest of parameter.grad() is this rank's own gradient: do not use it. If
  // only some ranks have a gradient, it throws Error, as Bucketed does.
  void finish();

  // Shows whole tensors on rank 0, one after the other. Every rank must call it. Gradients are
  // those of the last finish().
  void visit_parameters(const SeeTensor& see) const { parameters_.visit_parameters(see); }
  void visit_gradients(const SeeTensor& see) const {
    parameters_.visit_gradients(has_gradient_, see);
  }

  const ShardLayout& plan() const { return parameters_.plan(); }

 private:
  void launch(std::size_t bucket, const std::string& label) override;

  FlatParameters parameters_;
  HasGradient has_gradient_;                // at the last finish()
  std::vector<ddp::ScopedWork> under_way_;  // [bucket]
};

}  // namespace ringside::zero
