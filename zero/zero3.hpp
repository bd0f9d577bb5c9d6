// ZeRO stage 3: parameters are sharded too. (PyTorch's FullyShardedDataParallel, FSDP.)
//
// The model is divided into units: the embedding, each block, and the root with the rest (last
// norm, head). A rank keeps its shard, 1/p, of each unit. Just before a unit runs, in forward and
// again in backward, its parameters are all-gathered ("unshard"); right after, they are freed
// ("reshard"). While one unit computes, the next one is gathered:
//
//     forward     embedding | block 0 | block 1 | root (norm, head)
//     network     e | 0     | 1       | r       |                     all-gathers, one unit ahead
//     in memory   [e, 0]    | [0, 1]  | [1, r]  | [r]                 at most two units
//
//     backward    root (head, norm) | block 1 | block 0 | embedding
//     all-gathers           1       | 0       |         |
//     reduce-scatters               | r       |       1 |       0  e
//
// A block is gathered twice and reduce-scattered once. The embedding is gathered once, because its
// backward reads no weight. The root is gathered once too: backward starts with it, so it stays
// from forward. (If the head is tied to the embedding, their matrix belongs to the root. It is
// gathered at the beginning and at the end of forward.)
//
//     on the wire for each rank    blocks                      3 (p-1)/p of their bytes
//                                  embedding, norm and head    2 (p-1)/p of their bytes
//
// Shards may be fp32 where the model computes in bf16 (fp32_shards): a unit is rounded before it is
// gathered, so the network carries bf16, and the optimizer updates fp32. In a unit with parameters
// of both dtypes, such as fp32 norms in a bf16 block, each dtype has flat memory of its own.
//
// Gradients are handled as in stage 2, with one bucket for each unit. Autograd knows nothing of
// this. Forward hooks of Module tell when a unit is entered and left, a hook on its output when
// backward enters it, and the hooks of the parameters when a gradient is complete.
//
// A breakpoint in Zero3::start_unshard shows who needs which unit.
//
// Sources: Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB
// 2023, sections 3 and 4; Rajbhandari et al., SC 2020, sections 5.3 and 7.2.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/nn/module.hpp"
#include "zero/flat_shard_optimizer.hpp"
#include "zero/gradient_shards.hpp"
#include "zero/wrap_policy.hpp"

namespace ringside::zero {

class Zero3 {
 public:
  static constexpr bool forward_communicates = true;  // it gathers parameters

  // Copies the parameters and buffers of rank 0 to all ranks, and frees what this rank does not
  // keep. `wrapped` are modules of `module`, none within another; each makes a unit. Parameters in
  // `alone` are gathered with their unit, but in flat memory of their own. `module` and `group`
  // must outlive this object. From now on parameters can be read only while their unit runs, and
  // not at all after this object is destroyed. `fp32_shards`: those of bf16 parameters that are
  // trained; visit_parameters() and visit_gradients() then show fp32.
  Zero3(autograd::Module& module, collectives::ProcessGroup& group,
        const std::vector<autograd::NamedModule>& wrapped, const ddp::Alone& alone = {},
        bool fp32_shards = false);
  Zero3(autograd::Module& module, collectives::ProcessGroup& group, const ddp::Alone& alone = {},
        bool fp32_shards = false)
      : Zero3(module, group, default_wrap_policy(module), alone, fp32_shards) {}
  ~Zero3();

  // An optimizer whose step() updates this rank's shards. It does not communicate: the next forward
  // gathers. This object must outlive it.
  std::unique_ptr<ShardedOptimizer> make_optimizer(std::vector<autograd::ParameterGroup> groups,
                                                   ShardedOptimizer::Make make);

  // As in Zero2.
  void finish();
  [[nodiscard]] MicroBatch no_sync() { return MicroBatch(*gradients_); }

  // Shows whole tensors on rank 0, one after the other. Every rank must call it. Gradients are
  // those of the last finish().
  void visit_parameters(const SeeTensor& see) const;
  void visit_gradients(const SeeTensor& see) const {
    zero::visit_gradients(named_, plan_, shards_, gradients_->had_gradient(), group_, see);
  }

  // The units that are whole now, or being gathered, in the order of backward.
  std::vector<std::string> in_memory() const;
  const GradientShards& gradients() const { return *gradients_; }
  // The trained parameters: one bucket for each unit and dtype, in the order of backward.
  const ShardLayout& plan() const { return plan_; }

 private:
  // The trained, or the frozen, parameters of one dtype of one unit. (FSDP's FlatParameter.)
  struct Flat {
    std::string unit;
    autograd::Tensor whole;  // end to end, then padding; dropped while the unit is sharded
    autograd::Tensor part;   // this rank's part of whole
    autograd::Tensor shard;  // the numbers of part, kept; fp32 if fp32_shards
    std::optional<ddp::ScopedWork> all_gather = {};
    bool in_memory() const { return whole.storage()->data() != nullptr; }
  };
  using FlatIndices = std::vector<std::size_t>;  // into flats_, sorted
  // A module whose forward reads parameters: a wrapped module, or one outside of all units.
  struct Use {
    autograd::Module* module;
    FlatIndices needs;  // its own, and those of the modules around it
    FlatIndices outer;  // those of the modules around it, which stay in memory after it
    int pre_hook = 0, hook = 0;
  };

  void add_flats(const std::vector<Unit>& units, const ShardLayout& plan);
  void find_uses(autograd::Module& module, const std::vector<autograd::NamedModule>& wrapped);
  FlatIndices flats_of(const std::vector<autograd::NamedTensor>& parameters) const;

  void enter_forward(std::size_t use);
  void leave_forward(std::size_t use, const autograd::Tensor& output);
  void enter_backward(std::size_t use);
  void enter(std::size_t use, const FlatIndices& needs, int direction);
  FlatIndices needed_next(std::size_t use, const FlatIndices& needs, int direction) const;

  void start_unshard(Flat& flat);
  void unshard(Flat& flat);  // starts, if needed, and waits
  void reshard(Flat& flat);
  void reshard_all();

  Zero3(autograd::Module& module, collectives::ProcessGroup& group,
        const std::vector<autograd::NamedModule>& wrapped, const ddp::Alone& alone,
        bool fp32_shards, const std::vector<Unit>& units);

  std::vector<autograd::NamedTensor> named_;
  collectives::ProcessGroup& group_;
  ShardLayout plan_, frozen_;
  std::vector<Flat> flats_;  // those of plan_, then those of frozen_
  std::vector<Use> uses_;    // in the order of registration, which is that of forward
  ParameterShards shards_;
  std::unique_ptr<GradientShards> gradients_;
};

}  // namespace ringside::zero
