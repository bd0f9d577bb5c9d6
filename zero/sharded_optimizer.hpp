// An optimizer of which every rank updates only its own shards: the base of all optimizers in
// zero/.
//
//     groups()   whole parameters, as the caller gave them; learning rates are set here
//     local_     an ordinary optimizer over this rank's shards, with their state
//
// A checkpoint holds the state of whole parameters, so the number of ranks that wrote it does not
// matter: visit_state() collects one tensor after the other on rank 0, and fill_state() reads them
// back.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "autograd/optim/optimizer.hpp"
#include "collectives/process_group.hpp"
#include "zero/collect.hpp"

namespace ringside::zero {

class ShardedOptimizer : public autograd::Optimizer {
 public:
  // Makes the optimizer over this rank's shards.
  using Make =
      std::function<std::unique_ptr<autograd::Optimizer>(std::vector<autograd::ParameterGroup>)>;

  void add_group(autograd::ParameterGroup group) override;

  // The state of this rank's shards; empty if it has none, which happens when there are more ranks
  // than elements.
  std::vector<autograd::NamedTensor> state() const override;

  // The layout of the optimizer over this rank's shards; the same on all ranks.
  std::vector<autograd::StateEntry> state_layout(autograd::DType parameter) const override;

  // Shows the whole state on rank 0, with the names, shapes and order of a single process. Every
  // rank must call it.
  void visit_state(const SeeTensor& see) const;
  // The reverse: `fill` writes each whole tensor, and this rank keeps its range. Ranks do not
  // communicate.
  void fill_state(const FillTensor& fill);

  // This rank's shards of the parameters, under the parameters' names. Their gradients are complete
  // after the strategy's finish(), and the next step() reads them.
  std::vector<autograd::NamedTensor> shards() const;

  // The sum of the squares of all gradients of the whole model. Every rank must call it.
  double grad_norm_squared() const;

  // The range of parameter `i` of group `g` that each rank updates: [rank].
  virtual std::vector<ShardRange> ranges(std::size_t g, std::size_t i) const = 0;
  // The dtype of its shards.
  virtual autograd::DType shard_dtype(std::size_t g, std::size_t i) const {
    return groups()[g].parameters[i].tensor.dtype();
  }

 protected:
  ShardedOptimizer(std::vector<autograd::ParameterGroup> groups, collectives::ProcessGroup& group,
                   Make make);

  // Derived constructors call this once, when shards_of() works.
  void add_shards_of_all_groups();
  // This rank's shards of the parameters of one group, under the parameters' names. Called once for
  // each group, in order.
  virtual std::vector<autograd::NamedTensor> shards_of(const autograd::ParameterGroup& group) = 0;

  // Updates this rank's shards, with the learning rates and weight decay in groups().
  void step_shards();

  collectives::ProcessGroup& group_;

 private:
  // Not called: step_shards() leaves updates to the local optimizer.
  void update(autograd::Device, const std::vector<Update>&) override {}
  void add_shards(std::size_t g);

  Make make_;
  // Has the same groups as this one. nullptr while this rank has no shard.
  std::unique_ptr<autograd::Optimizer> local_;
};

}  // namespace ringside::zero
