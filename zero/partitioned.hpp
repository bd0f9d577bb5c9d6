// What all optimizers of zero/ are: an optimizer around another one, which knows only this rank's
// part of every parameter.
//
//     groups()   whole parameters, as the user gave them; rates are set here
//     share_     an ordinary optimizer over the parts that this rank keeps, with their state; none where that is nothing
//
// For checkpoints the state of whole parameters is brought together on rank 0, one tensor after the
// other, and given out again from there: a file does not tell how many ranks wrote it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "autograd/optim/optimizer.hpp"
#include "collectives/process_group.hpp"
#include "zero/shard_plan.hpp"

namespace ringside::zero {

// Called for one whole tensor after the other, on rank 0 alone. The tensor lives as long as the
// call.
using SeeTensor = std::function<void(const autograd::NamedTensor& whole)>;
// Called on every rank, for one whole tensor after the other: writes its numbers.
using FillTensor = std::function<void(const autograd::NamedTensor& whole)>;

// Brings the parts of a tensor together. `mine` is this rank's part as [count], undefined where
// that is none; `parts` is [rank], without gaps. On rank 0 the result has `shape`, elsewhere it is
// undefined. Every rank must call it. Only `count` elements leave each rank.
autograd::Tensor collect(const autograd::Tensor& mine, const std::vector<Part>& parts,
                         autograd::Shape shape, autograd::DType dtype,
                         collectives::ProcessGroup& group, std::string_view label);

class PartitionedOptimizer : public autograd::Optimizer {
 public:
  // Makes the optimizer of this rank's share.
  using Make =
      std::function<std::unique_ptr<autograd::Optimizer>(std::vector<autograd::ParameterGroup>)>;

  void add_group(autograd::ParameterGroup group) override;

  // Of this rank's share alone; empty where it has none, as where there are more ranks than
  // numbers.
  std::vector<autograd::NamedTensor> state() const override;

  // Of the optimizer of this rank's share, which is the same on all ranks.
  std::vector<autograd::StateEntry> state_layout(autograd::DType parameter) const override;

  // The whole state, in the names, shapes and order in which the optimizer of a single process has
  // it. Every rank must call it.
  void visit_state(const SeeTensor& see) const;
  // The reverse: `fill` writes each whole tensor, of which this rank keeps its part. No rank needs
  // another.
  void fill_state(const FillTensor& fill);

  // The squares of all gradients of the whole model, summed: of this rank's share, and then over
  // ranks. Every rank must call it.
  double grad_norm_squared() const;

  // What each rank keeps of parameter `i` of group `g`: [rank].
  virtual std::vector<Part> parts(std::size_t g, std::size_t i) const = 0;

 protected:
  PartitionedOptimizer(std::vector<autograd::ParameterGroup> groups,
                       collectives::ProcessGroup& group, Make make);

  // The constructors of the heirs call it, once they can answer share_of().
  void share_out_all();
  // Called once for every group, in order: this rank's part of each of its parameters, under the
  // parameter's name.
  virtual std::vector<autograd::NamedTensor> share_of(const autograd::ParameterGroup& added) = 0;

  // Updates this rank's share, at the rates that groups() says now.
  void step_share();

  collectives::ProcessGroup& group_;

 private:
  void update(const Slot&, const autograd::ParameterGroup&) override {
  }  // the share's optimizer does that
  void share_out(const autograd::ParameterGroup& added);

  Make make_;
  std::size_t shared_out_ = 0;                  // groups
  std::unique_ptr<autograd::Optimizer> share_;  // over the same groups, each with this rank's parts
};

}  // namespace ringside::zero
