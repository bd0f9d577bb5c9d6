// ZeRO, stage 1, the first form: the state of the optimizer is shared out, and with it the work of
// updating.
//
// AdamW keeps two numbers for every parameter. In data parallel every rank keeps all of them, and
// all ranks compute the same update. Here each parameter has an owner, which alone keeps its state,
// updates it, and hands the others the result:
//
//     rank             0             1             2
//     parameters   [ a | b | c ] [ a | b | c ] [ a | b | c ]      whole on every rank
//     gradients    [ a | b | c ] [ a | b | c ] [ a | b | c ]      averaged by a form of ddp/: Naive, Flat, Overlap, Bucketed
//     state        [ a         ] [     b     ] [         c ]      1/p of it on each
//     step()         a ──────────> a ──────────> a                one broadcast for each parameter, from its owner
//                    b <────────── b ──────────> b
//
// On the wire: the all-reduce of the gradients, 2 (p-1)/p of their bytes for each rank, and then
// the parameters once more.
//
// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models", SC 2020, section 5.1.
#pragma once

#include <vector>

#include "zero/partitioned.hpp"

namespace ringside::zero {

// An optimizer around any optimizer of autograd/. Every rank must make it of the same groups, and
// call it alike.
class ShardedOptimizer final : public PartitionedOptimizer {
 public:
  // `group` must outlive this.
  ShardedOptimizer(std::vector<autograd::ParameterGroup> groups, collectives::ProcessGroup& group,
                   Make make);

  // Updates this rank's share from its gradients, which must be alike on all ranks, and makes all
  // parameters, on every rank, what their owners have made of them. Learning rates and weight decay
  // are those that groups() says now.
  void step() override;

  // The rank that keeps the state of parameter `i` of group `g`.
  int owner(std::size_t g, std::size_t i) const { return owners_[g][i]; }
  std::vector<Part> parts(std::size_t g, std::size_t i) const override;  // all with the owner

 private:
  std::vector<autograd::NamedTensor> share_of(const autograd::ParameterGroup& added) override;

  std::vector<std::vector<int>> owners_;  // [group][parameter]
  std::vector<std::int64_t> load_;        // [rank] elements that it owns
};

}  // namespace ringside::zero
