// What training asks of a parallel form: the only thing that this room knows about there being
// other ranks.
//
// One step, as the trainer takes it:
//
//     backward(loss)                       gradients of this rank's share of the batch; a form may hang on their hooks already.
//                                          In several micro-batches: one backward for each, all but the last under no_sync()
//     form.finish_gradients()              ... now they are those of the whole batch
//     form.clip_gradients(optimizer, max)  ... and no longer than max
//     form.step(optimizer)                 and the parameters have moved, alike on every rank
//
// The forms of ddp/ and zero/ know nothing of this file; cli/training/parallel_strategies.hpp puts
// them behind it.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/nn/module.hpp"
#include "autograd/optim/optimizer.hpp"

namespace ringside::transformer {

class ParallelStrategy {
 public:
  using MakeOptimizer =
      std::function<std::unique_ptr<autograd::Optimizer>(std::vector<autograd::ParameterGroup>)>;

  virtual ~ParallelStrategy() = default;

  virtual int rank() const = 0;  // 0 .. size()-1
  virtual int size() const = 0;

  // Called once, before the first step. Afterwards every rank has the parameters and buffers of
  // rank 0, the frozen ones too. `model` stays alive as long as the form is used.
  virtual void prepare(autograd::Module& model) = 0;

  // While what it returns lives, backward only adds gradients up, on this rank. Nothing where a
  // form does not listen to backward.
  virtual std::shared_ptr<void> no_sync() { return nullptr; }

  // Called once after the (last) backward of a step. Afterwards each gradient is the mean of the
  // ranks' gradients: since every rank's loss is the mean over an equal share of the batch, that is
  // the gradient of the mean over the whole batch.
  virtual void finish_gradients() = 0;

  // Makes the optimizer over what this rank updates: here all parameters, in a form that shards
  // them its own part.
  virtual std::unique_ptr<autograd::Optimizer> make_optimizer(
      std::vector<autograd::ParameterGroup> groups, const MakeOptimizer& make);

  // The norm of all gradients of the whole model as one vector, before clipping; if max_norm > 0
  // and the norm is larger, all are scaled so that it is max_norm. A form that shards gradients
  // sums the squares over ranks.
  virtual double clip_gradients(autograd::Optimizer& optimizer, double max_norm);

  // Updates the parameters; afterwards they are alike on every rank.
  virtual void step(autograd::Optimizer& optimizer) { optimizer.step(); }

  // Called before every backward: lets go of the gradients of the step before, or sets them to zero
  // where the form keeps them.
  virtual void clear_gradients(autograd::Optimizer& optimizer) { optimizer.zero_grad(); }

  // The mean of the ranks' values, the same on every rank to the bit. Every rank must call it.
  virtual double average(double value) = 0;

  // Whole tensors, one after the other: for checkpoints, and for whoever wants to look. A form that
  // shards them brings them together on rank 0 and calls `see` there alone; others call it on every
  // rank. Every rank must call it, and a tensor lives as long as the call. Parameters and gradients
  // come under their names in the order of the model, state as the optimizer of a single process
  // has it.
  using SeeTensor = std::function<void(const autograd::NamedTensor& whole)>;
  virtual void visit_parameters(const autograd::Module& model, const SeeTensor& see) const;
  virtual void visit_gradients(const autograd::Module& model, const SeeTensor& see) const;
  virtual void visit_state(const autograd::Optimizer& optimizer, const SeeTensor& see) const;
  // The reverse for state: on every rank, `fill` writes one whole tensor after the other, of which
  // the form keeps what is this rank's.
  virtual void fill_state(autograd::Optimizer& optimizer, const SeeTensor& fill) const;

  // Whether a forward pass is a matter of all ranks, because parameters are fetched for it. Then
  // every rank must take it, and alike.
  virtual bool forward_communicates() const { return false; }

  // Time that this rank has spent waiting for communication since it was made, seconds.
  virtual double communication_seconds() const = 0;
};

}  // namespace ringside::transformer
