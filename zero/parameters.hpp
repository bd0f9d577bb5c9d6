// ZeRO, stage 3: parameters are shared out too. (PyTorch's FullyShardedDataParallel.)
//
// The model is cut into units: the embedding, each block, and what is left (last norm, head) is the
// root. Of every unit a rank keeps 1/p, and all of it only while the unit runs: gathered just
// before, freed right after, in forward and again in backward. While one unit computes, the next is
// on its way:
//
//     forward     embedding | block 0 | block 1 | root(norm, head)
//     network     e | 0     | 1       | r       |                             all-gathers, one unit ahead
//     in memory   [e, 0]    [0, 1]    [1, r]    [r]                           two units at most
//
//     backward    root(head, norm) | block 1 | block 0 | embedding
//     network     | 1              | 0   [r] |     [1] |   [0]  [e]           all-gathers, [reduce-scatters]
//
// A block is gathered twice and reduce-scattered once. The embedding is gathered once, since its
// backward reads no weight, and so is the root, which is still there when backward begins. (If the
// head is tied to the embedding, their matrix is the root's, and is gathered at both ends of
// forward.)
//
//     on the wire for each rank    3 (p-1)/p of the bytes of the blocks, 2 (p-1)/p of those of embedding, norm and head
//
// Gradients are those of stage 2, a bucket for each unit. Autograd knows nothing of all this:
// Module's forward hooks tell when a unit is entered and left, a hook on its output when backward
// enters it, and the hooks of the parameters when a gradient is there.
//
// A breakpoint on ShardedParameters::gather shows who asks for which unit.
//
// Sources: Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB
// 2023, sections 3 and 4; Rajbhandari et al., SC 2020, sections 5.3 and 7.2.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/nn/module.hpp"
#include "zero/gradient_shards.hpp"

namespace ringside::zero {

// The elements of the module's lists, as layers.0, layers.1, ... (lists within such an element are
// its own affair); and each module whose backward reads no parameter, an embedding: it is needed at
// the beginning alone.
std::vector<autograd::NamedModule> usual_units(autograd::Module& module);

class ShardedParameters {
 public:
  // Makes all ranks' parameters and buffers those of rank 0, and frees what this rank does not
  // keep. `units` are modules of `module`, none within another. A parameter that two of them share
  // (tied weights) belongs to the root. `module` and `group` must outlive this; the parameters can
  // be read only while their unit runs, and not after this has gone.
  ShardedParameters(autograd::Module& module, collectives::ProcessGroup& group,
                    const std::vector<autograd::NamedModule>& units);
  ShardedParameters(autograd::Module& module, collectives::ProcessGroup& group)
      : ShardedParameters(module, group, usual_units(module)) {}
  ~ShardedParameters();

  // As ShardedState's; its step() communicates nothing, for the next forward gathers.
  std::unique_ptr<PartitionedOptimizer> make_optimizer(std::vector<autograd::ParameterGroup> groups,
                                                       PartitionedOptimizer::Make make);

  // As ShardedGradients'.
  void finish();
  [[nodiscard]] MicroBatch no_sync() { return MicroBatch(*gradients_); }

  // Whole tensors on rank 0, one after the other. Every rank must call it.
  void visit_parameters(const SeeTensor& see) const;
  void visit_gradients(const SeeTensor& see) const {
    zero::visit_gradients(named_, plan_, slices_, gradients_->has_gradient(), group_, see);
  }

  std::vector<std::string> in_memory()
      const;  // the units that are there whole now, or on their way
  const GradientShards& gradients() const { return *gradients_; }
  const ShardPlan& plan() const {
    return plan_;
  }  // of what is trained: a bucket for each unit, in the order of backward

 private:
  // The trained, or the frozen, parameters of one type of one unit.
  struct Flat {
    const ShardPlan* plan;
    std::size_t bucket;
    std::string unit;
    autograd::Tensor whole;  // end to end, filled up; dropped unless gathered
    autograd::Tensor shard;
    std::optional<collectives::Work> under_way = {};
    bool in_memory() const { return whole.storage()->data() != nullptr; }
  };
  using Flats = std::vector<std::size_t>;  // into flats_, sorted
  // A module that reads parameters when it runs, in the order in which modules are registered,
  // which is that of forward.
  struct Use {
    autograd::Module* module;
    Flats needs;  // its own, and those of the modules around it
    Flats above;  // of these, what the modules around it need
    int pre_hook = 0, hook = 0;
  };

  void add_flats(const ShardPlan& plan);
  void find_uses(autograd::Module& module, const std::vector<autograd::NamedModule>& units);
  Flats flats_of(const std::vector<autograd::NamedTensor>& parameters) const;

  void enter_forward(std::size_t use);
  void leave_forward(std::size_t use, const autograd::Tensor& output);
  void enter_backward(std::size_t use);
  void enter(std::size_t use, const Flats& needs, int direction);
  Flats needed_next(std::size_t use, const Flats& needs, int direction) const;

  void gather(Flat& flat);  // starts
  void gather_and_wait(Flat& flat);
  void release(Flat& flat);
  void release_all();

  struct UnitParameters {
    std::string name;
    std::vector<autograd::NamedTensor> trained, frozen;
  };
  static std::vector<UnitParameters> divide(const autograd::Module& module,
                                            const std::vector<autograd::NamedModule>& units);
  static std::vector<ddp::Bucket> buckets_of(const std::vector<UnitParameters>& divided,
                                             bool trained);

  std::vector<autograd::NamedTensor> named_;
  collectives::ProcessGroup& group_;
  std::vector<UnitParameters>
      divided_;  // in the order of backward: the unit whose first parameter is the last comes first
  ShardPlan plan_, frozen_;
  std::vector<Flat> flats_;  // plan_'s, then frozen_'s
  std::vector<Use> uses_;
  Slices slices_;
  std::unique_ptr<GradientShards> gradients_;
};

}  // namespace ringside::zero
