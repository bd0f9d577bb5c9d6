// MeshPlan: how the ranks of a training run divide the work, before there are any ranks.
#pragma once

#include <string>

#include "parallel/mesh_shape.hpp"
#include "transformer/config.hpp"
#include "transformer/memory.hpp"
#include "transformer/model_part.hpp"
#include "transformer/trainer.hpp"

namespace ringside::cli {

struct MeshPlan {
  parallel::MeshShape shape;
  bool sequence_parallel = false;

  int data_ranks() const { return shape.size(parallel::Axis::dp); }
  // Whether ranks hold different parts of the model.
  bool divides_model() const { return shape.ranks() > data_ranks(); }
  std::string text() const;  // "mesh dp=2,tp=2, sequence parallel"
};

// The part of the model that a rank of the mesh holds: layers by its pp coordinate, floor +
// remainder, and matrices by its tp coordinate.
transformer::ModelPart part_of_rank(const parallel::MeshShape& shape,
                                    const transformer::Config& config, int rank);

// Throws Error, with one sentence that says what would fit, if the model or the sequences cannot be
// divided so, or if --parallel does not work on such a mesh.
void require_divisible(const MeshPlan& plan, const transformer::Config& config,
                       const transformer::TrainerOptions& options, const std::string& strategy);

// What a rank of this mesh holds. `of_strategy` is what the data-parallel strategy keeps of a part.
transformer::Held held_by_rank(const MeshPlan& plan, const transformer::Config& config, int rank,
                               transformer::Held of_strategy);

}  // namespace ringside::cli
