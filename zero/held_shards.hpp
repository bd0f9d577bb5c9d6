// HeldShards: what a rank of ZeRO takes along when its group is gone: its own shards with the
// optimizer's state, and a copy of its left neighbour's (PartitionedOptimizer::keep_copy). If one
// rank of a group is lost, the others hold all of the model, and put every tensor together again
// for a group of another size.
//
//     rank      0          1          2               lost: 1
//     own       shard 0    shard 1    shard 2         shard 0 and 2 from their owners,
//     copy      shard 2    shard 0    shard 1         shard 1 from rank 2
//
// All shards must be of one step, at every moment:
//
//     reduce-scatter | gradients to the right | loss of all ranks | update own shards and copies
//
// The loss is the mean over all ranks, so who knows it knows that every gradient is on two ranks.
// Nobody updates before. When a rank has updated, every other one can.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autograd/optim/optimizer.hpp"
#include "collectives/process_group.hpp"
#include "zero/shard_plan.hpp"

namespace ringside::zero {

// Elements range.begin .. range.begin + range.count of a parameter or of its state, [count].
struct Piece {
  std::string name;
  ShardRange range;
  autograd::Tensor values;
};

class HeldShards {
 public:
  // Of one rank: its optimizers, which update the pieces. Either may be nullptr, if it has none.
  struct Shards {
    std::unique_ptr<autograd::Optimizer> optimizer;
    std::vector<Piece> pieces;
  };

  HeldShards() = default;  // nothing, as a rank has that comes
  // `stamp` is the same for all shards that were made together. `can_update`: gradients of own
  // shards and of the copy are complete, and not yet used.
  HeldShards(Shards own, Shards copy, int rank, int ranks, std::int64_t steps, bool can_update,
             std::int64_t stamp);

  bool empty() const { return info_.ranks == 0; }

  // Tells all ranks of `group` what this one holds, and makes the last update if another rank has
  // made it. Returns the steps that all shards now have. Throws the same Error on all ranks if they
  // do not hold everything. Every rank of the group must call it.
  std::int64_t meet(collectives::ProcessGroup& group);
  // Puts one whole tensor together on every rank, after meet(). Every rank must call it.
  void fill(const autograd::NamedTensor& whole, collectives::ProcessGroup& group) const;

 private:
  struct Info {
    std::int64_t rank = 0, ranks = 0, steps = 0, can_update = 0, stamp = 0;
  };

  Shards own_, copy_;
  Info info_;
  bool shows_copy_ = false;  // its owner is lost
};

}  // namespace ringside::zero
