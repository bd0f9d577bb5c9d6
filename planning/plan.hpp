// Plan: how a model is trained: on which mesh, with which schedule, batch, types and savings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/tensor/device.hpp"
#include "autograd/tensor/dtype.hpp"
#include "parallel/mesh_shape.hpp"
#include "planning/model.hpp"

namespace ringside::planning {

using parallel::Axis;
using parallel::MeshShape;

enum class Recompute { none, selective, full };

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
  std::string schedule = "1f1b";   // of the pipeline: a name of its catalogue
  std::int64_t chunks = 1;         // of a stage: v of the interleaved schedule
  std::int64_t micro_batch = 1;    // sequences
  std::int64_t micro_batches = 1;  // of one data-parallel rank and step
  std::int64_t sequence = 1024;    // tokens
  int zero = 0;                    // stage of ZeRO over the axis dp; fsdp is always stage 3
  Recompute recompute = Recompute::none;
  bool sequence_parallel = false;
  Types types = {};
  int gradient_copies = 1;     // 2 where they are reduced in a buffer of their own
  double bucket_bytes = 25e6;  // of gradients that ZeRO stage 2 reduces
  autograd::Device device = autograd::Device::cpu;  // where Ringside trains it
  // How many axes of a torus carry an axis of the mesh: FSDP and tensor parallel.
  double torus_fsdp = 1, torus_tp = 1;

  std::int64_t batch() const { return mesh.data_ranks() * micro_batch * micro_batches; }
};

// In the order of the enumerators.
const std::vector<std::string>& recompute_names();
std::string_view name_of(Recompute recompute);
std::vector<std::string> schedule_names();

// Reads --mesh of a plan; without text it is one device.
inline MeshShape planned_mesh(std::string_view text) {
  return text.empty() ? MeshShape() : MeshShape(text, parallel::Axes::planned);
}

// The axis that divides the parameters: fsdp, or dp under ZeRO stage 3.
std::optional<Axis> shard_axis(const Plan& plan);

// Stages on a rank of the pipeline: v of the interleaved schedule, 2 of zb_v.
int stages_per_rank(const Plan& plan);

// The part of the model that a rank of the pipeline has, and of how many forward passes it keeps
// activations at the peak. Counted on the rank's actions.
struct PipelinePart {
  double blocks = 0;
  bool has_embedding = true, has_head = true;
  double blocks_in_flight = 0;   // of all stages and micro-batches, between F and B or W
  double heads_in_flight = 1;    // micro-batches of the last stage, between F and B or I
  bool splits_backward = false;  // into I and W: a block's activations are freed by W
};
PipelinePart pipeline_part(const Model& model, const Plan& plan, std::int64_t rank);

// Throws Error with one sentence if the model cannot be divided by the mesh, or options contradict
// each other.
void validate(const Plan& plan, const Model& model);

}  // namespace ringside::planning
