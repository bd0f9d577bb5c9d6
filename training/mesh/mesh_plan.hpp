// MeshPlan: how the ranks of a training run divide the work, before there are any ranks.
#pragma once

#include <string>
#include <vector>

#include "parallel/context/order.hpp"
#include "parallel/mesh_shape.hpp"
#include "parallel/pipeline/schedule.hpp"
#include "training/trainer.hpp"
#include "transformer/config.hpp"
#include "transformer/model_part.hpp"

namespace ringside::training {

struct MeshPlan {
  parallel::MeshShape shape;
  bool sequence_parallel = false;
  // The schedule of the pipeline with its messages, and its name; empty without a pp axis.
  pipeline_parallel::Schedule schedule = {};
  std::string schedule_name = {};
  context_parallel::ContextOptions context = {};  // of the cp axis
  std::string tensor_library = {};                // of the tp axis: see TensorFunctions
  int stages_per_rank = 1;                        // of the pipeline

  // Whether there is a mesh. Without one all ranks are data ranks.
  bool given() const { return !shape.axes().empty(); }

  int data_ranks() const { return shape.data_ranks(); }
  // The ranks that see different tokens and average their gradients; those of experts over the
  // ranks that hold them.
  int gradient_ranks() const { return data_ranks() * shape.size(parallel::Divides::sequence); }
  // Whether ranks hold different parts of the model.
  bool divides_model() const;
  std::string text() const;  // "mesh dp=2,tp=2, sequence parallel"
};

// The axes over which gradients are averaged. The data-parallel strategy works along `inner`, where
// those of ZeRO shard: fsdp, or dp in a mesh without fsdp; and cp, whose ranks hold the same
// parameters. What it leaves on a rank is then averaged along `copies`: dp in a mesh with fsdp, or
// an axis of one rank. Zhao et al., "PyTorch FSDP" (2023), section 3.2.2, names this hybrid
// sharding. All but the experts is also averaged along ep.
struct GradientAxes {
  std::vector<parallel::Axis> inner;
  parallel::Axis copies;
};
GradientAxes gradient_axes(const parallel::MeshShape& shape);

// Gives a mesh with a pp axis its schedule: a name of the catalogue, "csv:FILE" or FILE.so.
// stages_per_rank 0 is the schedule's default. Throws Error, one sentence that says what would fit,
// if the schedule does not serve these numbers or is not right.
void plan_schedule(MeshPlan& plan, const std::string& name, std::int64_t micro_batches,
                   int stages_per_rank = 0);

// The part of the model that a rank of the mesh holds: the blocks of its stages, and matrices by
// its tp coordinate.
transformer::ModelPart part_of_rank(const MeshPlan& plan, const transformer::Config& config,
                                    int rank);

// Throws Error, with one sentence that says what would fit, if the model or the sequences cannot be
// divided so, or if --parallel does not work on such a mesh.
void require_divisible(const MeshPlan& plan, const transformer::Config& config,
                       const TrainerOptions& options, const std::string& strategy);

}  // namespace ringside::training
