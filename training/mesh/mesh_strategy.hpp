// MeshStrategy: the parallel strategy of `ringside train --mesh`. Matrices are divided along tp and
// layers along pp; along dp or fsdp an ordinary data-parallel strategy averages gradients.
//
//     a step    backward            the inner strategy averages along fsdp, or dp without fsdp, and
//               inner finish        along cp
//               copies              with fsdp: along dp, what the inner strategy left on this rank;
//                                   along ep, all but the experts
//               sums                over ranks that hold copies of the same elements, but saw
//                                   different tokens, heads or layers:
//                                     norms          over tp, if the sequence is divided
//                                     key, value     over the tp ranks that share a head
//                                     tied matrix    over the first and the last stage
//               norm                every element once: the squares are added up over the ranks of
//                                   a model, and of its shards if gradients are sharded
//               clip, step          the same on all ranks
//
// All of this works on what the inner strategy leaves on a rank: whole gradients, or shards (ZeRO).
// Shards of copies match, because only vocabulary matrices differ in shape between tensor ranks,
// and they have buckets of their own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/process_group.hpp"
#include "parallel/device_mesh.hpp"
#include "training/mesh/mesh_plan.hpp"
#include "training/mesh/pipeline_run.hpp"
#include "training/mesh/whole_tensors.hpp"
#include "training/strategies/parallel_strategy.hpp"
#include "transformer/model_ranks.hpp"
#include "transformer/parameter_table.hpp"

namespace ringside::training {

class MeshStrategy final : public ParallelStrategy {
 public:
  // `inner` is the name of the data-parallel strategy, and `bucket_mb` its bucket size
  // (make_strategy). Every rank of `world` must construct it; it must outlive this object. Throws
  // Error if the model cannot be divided so.
  MeshStrategy(collectives::ProcessGroup& world, const MeshPlan& plan,
               const transformer::Config& config, const std::string& inner, double bucket_mb);
  ~MeshStrategy() override;

  int data_rank() const override { return plan_.shape.data_rank(mesh_.world().rank()); }
  int data_ranks() const override { return plan_.data_ranks(); }
  std::vector<transformer::TokenRange> tokens_of(std::int64_t length) const override;
  bool writes() const override { return mesh_.world().rank() == 0; }
  transformer::ModelPart part() const override { return part_; }
  const transformer::ModelRanks* model_ranks() const override { return model_ranks_.get(); }

  void prepare(autograd::Module& model) override;
  std::shared_ptr<void> no_sync() override { return inner_->no_sync(); }
  double run_batches(const transformer::Model& model,
                     std::span<const transformer::Batch> micro_batches) override;
  double loss_of(const transformer::Model& model, const transformer::Batch& batch) override;
  void finish_gradients() override;
  std::unique_ptr<autograd::Optimizer> make_optimizer(std::vector<autograd::ParameterGroup> groups,
                                                      const MakeOptimizer& make) override;
  LocalParameters local_parameters(const autograd::Optimizer& optimizer) const override {
    return inner_->local_parameters(optimizer);
  }
  double gradient_norm(const autograd::Optimizer& optimizer) override;
  void step(autograd::Optimizer& optimizer) override { inner_->step(optimizer); }

  double average(double value) override;
  bool same_everywhere(double integer) override;

  // Whole tensors on rank 0 of the world, in the order of a single process. Every trained parameter
  // must have a gradient.
  void visit_parameters(const autograd::Module& model, const SeeTensor& see) const override;
  void visit_gradients(const autograd::Module& model, const SeeTensor& see) const override;
  void visit_state(const autograd::Optimizer& optimizer, const SeeTensor& see) const override;
  void fill_state(autograd::Optimizer& optimizer, const SeeTensor& fill) const override;

  bool forward_communicates() const override {
    return inner_->forward_communicates() || mesh_.size(parallel::Axis::ep) > 1;
  }
  void give_up(const std::string& cause) noexcept override;
  double communication_seconds() const override;
  std::vector<SecondsAlong> communication_by_axis() const override;

  // Payload bytes that this rank has sent along each axis, including those for copies of key and
  // value heads (tp) and of a tied matrix (pp). What is averaged along two axes together counts for
  // the first.
  std::map<parallel::Axis, std::uint64_t> bytes_sent_by_axis() const;

  parallel::DeviceMesh& mesh() { return mesh_; }
  const PipelineRun* pipeline() const { return pipeline_.get(); }  // nullptr without a pp axis

 private:
  // Gradients whose copies are added up, or averaged, over a group after backward.
  struct GradientSum {
    collectives::ProcessGroup& group;
    std::string label;
    std::vector<autograd::Tensor> parameters;
    collectives::ReduceOp op = collectives::ReduceOp::sum;
  };

  void add_gradients(const GradientSum& sum) const;
  collectives::ProcessGroup& norm_group(bool is_sharded);
  autograd::DType dtype_of(const autograd::Optimizer& optimizer) const;
  void collect(const std::vector<WholeTensor>& order,
               const std::function<void(const SeeTensor&)>& visit, const SeeTensor& see) const;

  MeshPlan plan_;
  // Calls change a group, but not what it is: visiting tensors is const.
  mutable parallel::DeviceMesh mesh_;
  // The ranks that the inner strategy works with, and those with copies of what it leaves here.
  collectives::ProcessGroup &inner_group_, &copies_;
  transformer::ParameterTable table_;
  std::vector<transformer::ModelPart> parts_;  // [rank of mesh_.model_group()]
  transformer::ModelPart part_;                // of this rank
  std::unique_ptr<transformer::ModelRanks> model_ranks_;
  std::unique_ptr<ParallelStrategy> inner_;
  std::unique_ptr<PipelineRun> pipeline_;
  // The ranks that hold copies of this rank's key and value heads, and of its rows of a tied
  // matrix; none if there are no copies. Mutable as mesh_ is.
  mutable std::optional<collectives::ProcessGroup> kv_copies_, tied_copies_;
  std::vector<GradientSum> sums_;
  std::vector<autograd::Tensor> experts_;  // what this rank updates of its experts
};

}  // namespace ringside::training
