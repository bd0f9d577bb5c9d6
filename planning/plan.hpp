// Plan: how a model is trained: on which mesh, with which schedule, batch, types and savings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planning/model.hpp"

namespace ringside::planning {

// The devices as a grid. The first axis varies slowest, so the ranks of the last one are
// neighbours:
//
//     pp=2,dp=2,tp=2     rank 0 = (0, 0, 0)   rank 1 = (0, 0, 1)   rank 2 = (0, 1, 0) ...
//
// dp: data parallel.  fsdp: data parallel with sharded parameters.  tp: tensor parallel.
// pp: pipeline parallel.
struct Mesh {
  struct Axis {
    std::string name;
    std::int64_t size = 1;
    bool operator==(const Axis&) const = default;
  };
  std::vector<Axis> axes;

  std::int64_t size(std::string_view name) const;  // 1 if there is no such axis
  std::int64_t devices() const;
  std::int64_t data_ranks() const { return size("dp") * size("fsdp"); }
  // How many neighbouring devices contain a whole group of this axis.
  std::int64_t span(std::string_view name) const;
  bool operator==(const Mesh&) const = default;
};

// Reads "fsdp=16,tp=4". Throws Error that names the axes.
Mesh parse_mesh(std::string_view text);
std::string to_text(const Mesh& mesh);

enum class Schedule { gpipe, one_f_one_b, interleaved, zb_h1, zb_v };
enum class Recompute { none, selective, full };

// Bytes of one number.
struct Types {
  double parameters = 2, gradients = 2, activations = 2;
  // fp32 copies of 16-bit parameters, which the optimizer updates.
  double masters() const { return parameters < 4 ? 4 : 0; }
  double moments() const { return 8; }  // AdamW: two fp32 numbers
  double state() const { return parameters + gradients + masters() + moments(); }
};

struct Plan {
  Mesh mesh = {};
  Schedule schedule = Schedule::one_f_one_b;
  std::int64_t chunks = 1;         // of a stage: v of the interleaved schedule
  std::int64_t micro_batch = 1;    // sequences
  std::int64_t micro_batches = 1;  // of one data-parallel rank and step
  std::int64_t sequence = 1024;    // tokens
  int zero = 0;                    // stage of ZeRO over the axis dp; fsdp is always stage 3
  Recompute recompute = Recompute::none;
  bool sequence_parallel = false;
  Types types = {};
  // How many axes of a torus carry an axis of the mesh: FSDP and tensor parallel.
  double torus_fsdp = 1, torus_tp = 1;

  std::int64_t batch() const { return mesh.data_ranks() * micro_batch * micro_batches; }
};

Schedule schedule_named(std::string_view name);
Recompute recompute_named(std::string_view name);
double bytes_of_type(std::string_view name);  // bf16, fp16, fp32
std::string_view name_of(Schedule schedule);
std::string_view name_of(Recompute recompute);
const std::vector<std::string>& schedule_names();
const std::vector<std::string>& recompute_names();

// The blocks of stage `index`. Where they do not divide evenly, the stages after the first hold one
// more, because the first also holds the embedding and the last the head.
std::int64_t blocks_of_stage(const Model& model, const Plan& plan, std::int64_t index);

// Throws Error with one sentence if the model cannot be divided by the mesh, or options contradict
// each other.
void validate(const Plan& plan, const Model& model);

}  // namespace ringside::planning
