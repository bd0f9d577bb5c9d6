// ZeRO, stage 1, the second form: as optimizer.hpp, but each rank updates an even share of flat
// memory. (Megatron-LM's "distributed optimizer".)
//
// An all-reduce is a reduce-scatter and an all-gather. Between the two every rank holds the mean of
// 1/p of the gradients; that is all that it needs to update 1/p of the parameters. So the optimizer
// moves in between, and what is gathered are new parameters instead of gradients:
//
//     ddp/bucketed      reduce-scatter ──── all-gather ──── step (all of it, on every rank)
//     here              reduce-scatter ──── step (1/p) ──── all-gather
//
//     rank              0                       1
//     gradients      [ a   | b:.. ][ ..b | c ] [ a   | b:.. ][ ..b | c ]     whole, in buckets
//     averaged       [ ########## ]                         [ ######### ]    after the reduce-scatter, each rank its shard
//     state          [ ########## ]                         [ ######### ]
//     parameters     [ ########## ][ <──────]  [ ──────────> ][ ######## ]    updated there, then gathered in place
//
// On the wire for each rank: (p-1)/p of the gradients' bytes and (p-1)/p of the parameters': as
// much as data parallel, 2 (p-1)/p.
//
// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models", SC 2020, sections 5.1 and 7.1.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ddp/bucket_queue.hpp"
#include "ddp/bucketed.hpp"
#include "zero/slices.hpp"

namespace ringside::zero {

class ShardedState {
 public:
  // Makes all ranks' parameters and buffers those of rank 0, and moves parameters and gradients
  // into flat memory. `module` and `group` must outlive this.
  ShardedState(const autograd::Module& module, collectives::ProcessGroup& group,
               double bucket_mb = ddp::Bucketed::default_bucket_mb);

  // The optimizer whose step() updates this rank's slices and then makes all parameters whole again
  // on every rank. This must outlive it.
  std::unique_ptr<PartitionedOptimizer> make_optimizer(std::vector<autograd::ParameterGroup> groups,
                                                       PartitionedOptimizer::Make make);

  // Call after backward, on every rank: waits until this rank's slice of every gradient is the mean
  // over all ranks. (What a parameter's own grad() shows beside that slice is this rank's and of no
  // use.) As Bucketed, it names a gradient that is missing on some ranks only.
  void finish();

  // While the result lives, backward only adds gradients up, on this rank: for all but the last
  // micro-batch of a step.
  [[nodiscard]] ddp::Paused no_sync() { return queue_.pause(); }

  // Whole tensors on rank 0, one after the other. Every rank must call it.
  void visit_parameters(const SeeTensor& see) const {
    zero::visit_parameters(named_, plan_, slices_, group_, see);
  }
  void visit_gradients(const SeeTensor& see) const {
    zero::visit_gradients(named_, plan_, slices_, has_gradient_, group_, see);
  }

  int launched() const { return queue_.launched(); }  // buckets started since the last finish()
  const ShardPlan& plan() const { return plan_; }

 private:
  void settle(std::size_t bucket, std::size_t entry);
  void launch(std::size_t bucket, const std::string& label);

  std::vector<autograd::NamedTensor> named_;
  collectives::ProcessGroup& group_;
  ShardPlan plan_;
  std::vector<autograd::Tensor> parameters_, gradients_;  // [bucket]: end to end, filled up
  Slices slices_;
  std::vector<std::vector<bool>> has_gradient_;  // [bucket][entry]: at the last finish()
  std::vector<collectives::Work> under_way_;
  ddp::BucketQueue queue_;  // last: its hooks go before what they use
};

}  // namespace ringside::zero
