// Plan: how a model is trained: on which mesh, with which schedule, batch, types and savings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/tensor/device.hpp"
#include "autograd/tensor/dtype.hpp"
#include "parallel/context/order.hpp"
#include "parallel/mesh_shape.hpp"
#include "parallel/pipeline/schedule.hpp"
#include "planning/model.hpp"
#include "transformer/recompute_groups.hpp"

namespace ringside::planning {

using parallel::Axis;
using parallel::MeshShape;

enum class Recompute { none, selective, full };
struct Recomputation {
  Recomputation(Recompute what = Recompute::none)
      : kind(what), groups{.blocks = what == Recompute::full ? 1 : 0} {}
  // As a model does it: full, in these groups, or none.
  Recomputation(const transformer::RecomputeGroups& of_blocks)
      : kind(of_blocks.blocks > 0 ? Recompute::full : Recompute::none), groups(of_blocks) {}

  Recompute kind;
  transformer::RecomputeGroups groups;  // of full recomputation
};

// Bytes of one number.
struct Types {
  double parameters = 2, gradients = 2, activations = 2;
  bool adamw = true;
  // fp32 copies of 16-bit parameters, which the optimizer updates.
  double masters() const { return parameters < 4 ? 4 : 0; }
  // AdamW: two numbers, at least in fp32. SGD keeps nothing.
  double moments() const { return adamw ? 2 * std::max(4.0, parameters) : 0; }
  double state() const { return parameters + gradients + masters() + moments(); }
};

// Where parameters, gradients and activations have the same type.
Types types_of(autograd::DType dtype);

struct Plan {
  MeshShape mesh = {};             // dp and fsdp are both data parallel; fsdp shards the parameters
  std::string schedule = "1f1b";   // of the pipeline: a name of its catalogue, or "csv:FILE"
  std::int64_t chunks = 1;         // of a stage: v of the interleaved schedules
  std::int64_t micro_batch = 1;    // sequences
  std::int64_t micro_batches = 1;  // of one data-parallel rank and step
  std::int64_t sequence = 1024;    // tokens
  context_parallel::ContextOptions context = {};  // of the axis cp
  int zero = 0;                                   // stage of ZeRO; fsdp without a stage is stage 3
  Recomputation recompute = {};
  bool sequence_parallel = false;
  double imbalance = 1;  // rows of the busiest rank of ep, relative to the mean
  Types types = {};
  bool fused_gradients = false;  // products add to the gradients of earlier micro-batches
  double gradient_copies = 1;    // 2 where they are reduced in a buffer of their own
  double bucket_bytes = 25e6;    // of gradients that ZeRO stage 2 reduces
  autograd::Device device = autograd::Device::cpu;  // where Ringside trains it
  // How many axes of a torus carry an axis of the mesh: FSDP and tensor parallel.
  double torus_fsdp = 1, torus_tp = 1;

  // ZeRO divides the state over the axis fsdp, or dp in a mesh without it, and over cp, whose ranks
  // hold the same parameters. In a mesh with fsdp the ranks of dp hold copies of its shards.
  bool has_fsdp() const { return mesh.size(Axis::fsdp) > 1; }
  Axis state_axis() const {
    if (has_fsdp()) return Axis::fsdp;
    return mesh.size(Axis::dp) > 1 || mesh.size(Axis::cp) == 1 ? Axis::dp : Axis::cp;
  }
  std::int64_t state_ranks() const {
    return mesh.size(has_fsdp() ? Axis::fsdp : Axis::dp) * mesh.size(Axis::cp);
  }
  int stage() const { return zero == 0 && has_fsdp() ? 3 : zero; }
  bool shards_parameters() const { return stage() == 3 && state_ranks() > 1; }
  std::int64_t copies() const { return has_fsdp() ? mesh.size(Axis::dp) : 1; }

  // How often backward computes a block again.
  int times_again() const {
    return recompute.kind != Recompute::full ? 0 : recompute.groups.inner > 0 ? 2 : 1;
  }
  // Blocks of a stage that it computes again together.
  std::int64_t group_of(std::int64_t blocks) const {
    return std::clamp<std::int64_t>(recompute.groups.blocks, 1, std::max<std::int64_t>(1, blocks));
  }

  double busiest_rows() const { return mesh.size(Axis::ep) > 1 ? imbalance : 1; }

  // Tokens of a sequence on one rank, outside of the parts that sequence parallel divides.
  std::int64_t rank_sequence() const { return sequence / mesh.size(Axis::cp); }

  std::int64_t batch() const { return mesh.data_ranks() * micro_batch * micro_batches; }
};

// In the order of the enumerators.
const std::vector<std::string>& recompute_names();
std::string_view name_of(Recompute recompute);
// As transformer/recompute_groups.hpp, with "selective".
Recomputation recomputation_from(const std::string& text);
std::string text_of(const Recomputation& recompute);
std::vector<std::string> schedule_names();
// Whether a schedule of the catalogue takes any number of stages per rank: --chunks.
bool takes_chunks(const std::string& schedule);

// Reads --mesh of a plan; without text it is one device.
inline MeshShape planned_mesh(std::string_view text) {
  return text.empty() ? MeshShape() : MeshShape(text);
}

// As the schedule of the catalogue divides a rank; 0 if it is a file.
int stages_per_rank(const Plan& plan);

// The pipeline rank of each stage. Throws Error if the schedule is a file that is not for the
// plan's ranks and micro-batches.
std::vector<int> placement_of(const Plan& plan);

// The schedule with the actions of one rank only, because thousands of plans are tried, and of as
// many micro-batches as show what repeats. Throws as placement_of().
pipeline_parallel::Schedule schedule_of_rank(const Plan& plan, int rank);

// What a rank of the pipeline holds while one of its actions runs. Blocks and micro-batches are
// those of all its stages together.
struct Moment {
  enum class At {
    forward,      // F has just ended
    head,         // F of the last stage, at the loss
    block,        // B, in a block
    block_input,  // I, in a block
    embedding,    // B or I of the first stage, at its end
    weights       // W
  };
  At at = At::forward;
  double blocks = 0;           // between F and B or I: activations
  double deferred_blocks = 0;  // between I and W: what W needs
  double heads = 0;            // micro-batches between F and B or I of the last stage
  double deferred_heads = 0, deferred_embeddings = 0;  // micro-batches between I and W
  // Whose gradients exist in this step, in blocks; and whether those of head and embedding do.
  double gradients = 0;
  bool has_head_gradient = false, has_embedding_gradient = false;
  bool is_first = false;     // the first B or W of its stage, which makes the gradients
  bool is_at_head = false;   // of the last stage
  bool is_at_start = false;  // in the first block that backward enters; otherwise in the last one
};

// The part of the model that a rank of the pipeline has, and what it holds at every moment of a
// step. Counted on the rank's actions.
struct PipelinePart {
  double blocks = 0;
  bool has_embedding = true, has_head = true;
  double blocks_in_flight = 0;  // of all stages and micro-batches, between F and B or W: the most
  double messages = 0;          // to stages on other ranks, for each micro-batch
  std::vector<Moment> moments = {};
};
PipelinePart pipeline_part(const Model& model, const Plan& plan, std::int64_t rank);

// Throws Error with one sentence if the model cannot be divided by the mesh, or options contradict
// each other.
void validate(const Plan& plan, const Model& model);

}  // namespace ringside::planning
