#include "training/mesh/pipeline_run.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "parallel/pipeline/execution/autograd_stages.hpp"
#include "parallel/pipeline/execution/executor.hpp"

namespace ringside::training {
namespace {

using autograd::Tensor;
using parallel::Axis;
using pipeline_parallel::Action;
using pipeline_parallel::Schedule;
using transformer::Batch;
using transformer::Model;

class ModelStages final : public pipeline_parallel::AutogradStages {
 public:
  ModelStages(const Schedule& schedule, int rank, const Model& model,
              std::span<const Batch> batches, std::int64_t tokens_here,
              const PipelineRun::NoSync& no_sync)
      : AutogradStages(schedule, rank),
        model_(model),
        batches_(batches),
        tokens_here_(tokens_here),
        no_sync_(no_sync) {}

  Tensor empty_for(const Action&) override {
    return Tensor::empty({batches_.front().sequences, tokens_here_, model_.config().d_model},
                         model_.dtype(), model_.device());
  }

 private:
  Tensor compute(int stage, int micro_batch, const Tensor& input) override {
    const Batch& batch = batches_[micro_batch];
    const autograd::Shape shape{batch.sequences, batch.length};
    const auto layers =
        pipeline_parallel::layers_of_stage(model_.config().layers, schedule().stages(), stage);
    Tensor x = stage == 0 ? model_.embed(Tensor::from(batch.input, shape)) : input;
    x = model_.run_layers(x, layers.first, layers.end);
    if (stage + 1 < schedule().stages()) return x;
    return model_.head_loss(model_.last_norm(x), Tensor::from(batch.target, shape));
  }

  std::shared_ptr<void> no_sync() override { return no_sync_(); }

  // A tied matrix gets gradients from the first and from the last stage.
  bool share_gradients(int stage, int other) const override {
    const bool are_first_and_last =
        std::min(stage, other) == 0 && std::max(stage, other) == schedule().stages() - 1;
    return stage == other || (model_.config().tied_head && are_first_and_last);
  }

  const Model& model_;
  std::span<const Batch> batches_;
  std::int64_t tokens_here_;  // of each sequence, on this rank
  const PipelineRun::NoSync& no_sync_;
};

std::vector<std::string> names_of_stages(const parallel::DeviceMesh& mesh, int world_rank) {
  std::vector<std::string> names;
  for (const int member : mesh.shape().members(world_rank, Axis::pp))
    names.push_back(fmt::format("rank {}, {}", member, mesh.describe(member)));
  return names;
}

}  // namespace

PipelineRun::PipelineRun(parallel::DeviceMesh& mesh, const MeshPlan& plan, NoSync no_sync)
    : mesh_(mesh),
      plan_(plan),
      no_sync_(std::move(no_sync)),
      evaluation_(pipeline_parallel::forward_only(plan.schedule.rank_of, 1)),
      messages_(mesh.group(Axis::pp)) {}

double PipelineRun::train(const Model& model, std::span<const Batch> batches) {
  require(static_cast<int>(batches.size()) == plan_.schedule.micro_batches,
          "the schedule is for {} micro-batches, but the step has {}", plan_.schedule.micro_batches,
          batches.size());
  return run(plan_.schedule, model, batches);
}

double PipelineRun::evaluate(const Model& model, const Batch& batch) {
  return run(evaluation_, model, {&batch, 1});
}

double PipelineRun::run(const Schedule& schedule, const Model& model,
                        std::span<const Batch> batches) {
  for (const Batch& batch : batches)
    require(batch.sequences == batches.front().sequences && batch.length == batches.front().length,
            "all micro-batches of a step must have one size");
  collectives::ProcessGroup& group = mesh_.group(Axis::pp);
  const int divisor = plan_.sequence_parallel ? mesh_.size(Axis::tp) : 1;
  ModelStages stages(schedule, group.rank(), model, batches, batches.front().length / divisor,
                     no_sync_);
  pipeline_parallel::Executor(schedule, group.rank(), messages_, stages,
                              names_of_stages(mesh_, mesh_.world().rank()))
      .run();
  most_held_ = std::max(most_held_, stages.most_held());
  double loss = stages.take_mean_loss();
  group.broadcast(std::span(&loss, 1), schedule.rank_of.back(), "loss");
  return loss;
}

}  // namespace ringside::training
