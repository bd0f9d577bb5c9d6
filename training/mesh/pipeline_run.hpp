// PipelineRun: the blocks of a model as the stages of a pipeline.
//
//     stage 0              embedding, first blocks          reads the tokens
//     stages in between    blocks
//     last stage           last blocks, norm, head, loss    reads the targets
//
// Between stages travel tensors [sequences, tokens, d_model] in the model's dtype; under sequence
// parallel each tensor rank sends its part of the tokens to the same tensor rank of the next stage.
// Tokens and targets are not sent: every rank draws them.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "collectives/messages.hpp"
#include "parallel/device_mesh.hpp"
#include "parallel/pipeline/schedule.hpp"
#include "training/mesh/mesh_plan.hpp"
#include "transformer/data/batches.hpp"
#include "transformer/model.hpp"

namespace ringside::training {

class PipelineRun {
 public:
  using NoSync = std::function<std::shared_ptr<void>()>;

  // `plan` has a schedule; it and `mesh` must outlive this object. Every rank of the mesh must
  // construct it. `no_sync` is that of the data-parallel strategy, called around every backward
  // but the last one of each stage.
  PipelineRun(parallel::DeviceMesh& mesh, const MeshPlan& plan, NoSync no_sync);

  // Forward and backward of all micro-batches, in the order of the schedule, which is for as many.
  // Each gradient becomes that of the mean loss. Returns this mean on all ranks of the pipeline.
  // Every rank of the pipeline must call it, with the same batches of equal size.
  double train(const transformer::Model& model, std::span<const transformer::Batch> batches);

  // Forward only: the loss of one batch, on all ranks of the pipeline. Call it under NoGrad.
  double evaluate(const transformer::Model& model, const transformer::Batch& batch);

  // What travels between the stages, and how long this rank has waited for it.
  const collectives::Messages& messages() const { return messages_; }
  // The most pairs of stage and micro-batch whose activations this rank held at a time.
  int most_held() const { return most_held_; }

 private:
  double run(const pipeline_parallel::Schedule& schedule, const transformer::Model& model,
             std::span<const transformer::Batch> batches);

  parallel::DeviceMesh& mesh_;
  const MeshPlan& plan_;
  NoSync no_sync_;
  pipeline_parallel::Schedule evaluation_;  // one micro-batch, forward
  collectives::Messages messages_;
  int most_held_ = 0;
};

}  // namespace ringside::training
