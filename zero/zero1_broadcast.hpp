// ZeRO stage 1, first version: every parameter has an owner, the only rank that keeps its optimizer
// state and updates it. (PyTorch's ZeroRedundancyOptimizer.)
//
// AdamW keeps two numbers for every parameter. In data parallel all ranks keep all of them, and
// compute the same update. Here the owner computes it and broadcasts the result:
//
//     rank             0             1             2
//     parameters   [ a | b | c ] [ a | b | c ] [ a | b | c ]      whole on every rank
//     gradients    [ a | b | c ] [ a | b | c ] [ a | b | c ]      averaged by a class of ddp/
//     state        [ a         ] [     b     ] [         c ]      about 1/p on each rank
//     step()         a ----------> a ----------> a                one broadcast for each parameter
//                    b <---------- b ----------> b
//
// On the wire: the all-reduce of the gradients, 2 (p-1)/p of their bytes for each rank, and then
// all parameters once more.
//
// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter
// Models", SC 2020, section 5.1.
#pragma once

#include <vector>

#include "zero/sharded_optimizer.hpp"

namespace ringside::zero {

// Wraps any optimizer of autograd/. Every rank must make it of the same groups, and make the same
// calls.
class Zero1Broadcast final : public ShardedOptimizer {
 public:
  // `group` must outlive this object.
  Zero1Broadcast(std::vector<autograd::ParameterGroup> groups, collectives::ProcessGroup& group,
                 Make make);

  // Updates the parameters that this rank owns, from their gradients, which must be averaged
  // already. Then every parameter is broadcast from its owner.
  void step() override;

  // The rank that owns parameter `i` of group `g`.
  int owner(std::size_t g, std::size_t i) const { return owners_[g][i]; }
  // The whole parameter for its owner, nothing for the other ranks.
  std::vector<ShardRange> ranges(std::size_t g, std::size_t i) const override;

 private:
  std::vector<autograd::NamedTensor> shards_of(const autograd::ParameterGroup& group) override;
  std::vector<int> choose_owners(const autograd::ParameterGroup& group);

  std::vector<std::vector<int>> owners_;      // [group][parameter]
  std::vector<std::int64_t> owned_elements_;  // [rank]
};

}  // namespace ringside::zero
