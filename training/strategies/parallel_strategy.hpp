// ParallelStrategy: what the trainer asks of a parallel method. The trainer itself does not know
// that there are other ranks.
//
// The trainer calls it in this order, once per step:
//
//     run_batches(model, batches)       forward and backward over this rank's share of the batch;
//                                       the strategy may already communicate from the hooks of the
//                                       parameters
//     finish_gradients()                gradients become those of the whole batch
//     gradient_norm(optimizer)          of all of them; the optimizer scales them down by it
//     step(optimizer)                   parameters are updated, identically on every rank
//
// The methods in ddp/ and zero/ do not include this file.
// training/strategies/parallel_strategies.hpp adapts them to it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/nn/module.hpp"
#include "autograd/optim/optimizer.hpp"
#include "transformer/model_part.hpp"

namespace ringside::transformer {
class Model;
class ModelRanks;
struct Batch;
struct TokenRange;
}  // namespace ringside::transformer

namespace ringside::training {

// An axis of a mesh, "tp", and seconds of communication along it.
using SecondsAlong = std::pair<std::string, double>;

class ParallelStrategy {
 public:
  using MakeOptimizer =
      std::function<std::unique_ptr<autograd::Optimizer>(std::vector<autograd::ParameterGroup>)>;

  virtual ~ParallelStrategy() = default;

  // The share of the batch that this rank draws: 0 .. data_ranks() - 1. Ranks that hold parts of
  // one model draw the same share.
  virtual int data_rank() const = 0;
  virtual int data_ranks() const = 0;
  // Which tokens of each of its sequences, of `length`, this rank draws, ascending: by default all.
  virtual std::vector<transformer::TokenRange> tokens_of(std::int64_t length) const;

  // Whether this is the one rank that prints and saves.
  virtual bool writes() const { return data_rank() == 0; }

  // What the model of this rank is made with: by default all of it, undivided.
  virtual transformer::ModelPart part() const { return {}; }
  virtual const transformer::ModelRanks* model_ranks() const { return nullptr; }

  // Called once, before the first step. Afterwards every rank has the parameters (also frozen ones)
  // and buffers of rank 0. `model` must outlive the strategy.
  virtual void prepare(autograd::Module& model) = 0;

  // Forward and backward over the micro-batches of a step, in order: each gradient becomes that of
  // the mean of their losses. Returns this mean, the same on all ranks that share a model. By
  // default one forward and one backward for each, all but the last under no_sync().
  virtual double run_batches(const transformer::Model& model,
                             std::span<const transformer::Batch> micro_batches);

  // Forward only, for validation: the loss of a batch, in nats per token. Every rank that holds a
  // part of the model calls it.
  virtual double loss_of(const transformer::Model& model, const transformer::Batch& batch);

  // While the returned object lives, backward only accumulates gradients on this rank. A strategy
  // that communicates only in finish_gradients() returns nullptr.
  virtual std::shared_ptr<void> no_sync() { return nullptr; }

  // Called once, after the last backward of a step. Afterwards each gradient is the mean of the
  // ranks' gradients. All ranks have equally many tokens of the batch and each loss is a mean, so
  // this is the gradient of the mean over the whole batch.
  virtual void finish_gradients() = 0;

  // Makes the optimizer for the parameters that this rank updates: by default all of them. A
  // strategy that shards the state passes only this rank's part to `make`.
  virtual std::unique_ptr<autograd::Optimizer> make_optimizer(
      std::vector<autograd::ParameterGroup> groups, const MakeOptimizer& make);

  // The norm of all gradients of the model, taken as one vector: the same on every rank. A strategy
  // that shards gradients sums the squares over ranks.
  virtual double gradient_norm(const autograd::Optimizer& optimizer);

  // Updates the parameters. Afterwards they are identical on every rank.
  virtual void step(autograd::Optimizer& optimizer) { optimizer.step(); }

  // The mean of the data ranks' values, bit for bit the same on every rank. Every rank must call
  // it.
  virtual double average(double value) = 0;

  // Whether all ranks pass the same integer, which is below 2^32. Every rank must call it.
  virtual bool same_everywhere(double integer) { return average(integer) == integer; }

  // The parameters whose gradients finish_gradients() completes on this rank, under their names. A
  // strategy that shards gradients returns this rank's shards, and is_sharded is true.
  struct LocalParameters {
    std::vector<autograd::NamedTensor> tensors;
    bool is_sharded = false;
  };
  virtual LocalParameters local_parameters(const autograd::Optimizer& optimizer) const;

  // Visit whole tensors one at a time, for checkpoints and inspection. Every rank must call these.
  // A strategy that shards tensors gathers each one on rank 0 and calls `see` only there; the
  // others call it on every rank. The tensor is valid only during the call. Parameters and
  // gradients come in the order of the model under their names; optimizer state as the optimizer of
  // a single process has it.
  using SeeTensor = std::function<void(const autograd::NamedTensor& whole)>;
  virtual void visit_parameters(const autograd::Module& model, const SeeTensor& see) const;
  virtual void visit_gradients(const autograd::Module& model, const SeeTensor& see) const;
  virtual void visit_state(const autograd::Optimizer& optimizer, const SeeTensor& see) const;

  // The reverse of visit_state: on every rank, `fill` writes whole tensors one at a time, and the
  // strategy keeps this rank's part of each.
  virtual void fill_state(autograd::Optimizer& optimizer, const SeeTensor& fill) const;

  // Whether a forward pass communicates, because it gathers parameters. If so, every rank must run
  // the same forward passes in the same order.
  virtual bool forward_communicates() const { return false; }

  // Called when training fails on this rank: a strategy with groups of its own ends the calls of
  // the ranks that wait in them, with `cause`.
  virtual void give_up(const std::string& cause) noexcept { (void)cause; }

  // Seconds that this rank has waited for communication since the strategy was made.
  virtual double communication_seconds() const = 0;
  // The same by the axes of a mesh, always in the same order. Empty without a mesh.
  virtual std::vector<SecondsAlong> communication_by_axis() const { return {}; }
};

}  // namespace ringside::training
