// Trains on a mesh and alone, and compares: gradients, norms, losses, parameters, and the bits of
// copies.
#pragma once

#include "tests/mesh/mesh_run.hpp"

namespace ringside::testing {

using parallel::Axis;
using transformer::ParameterEntry;

inline int tensor_ranks(const std::string& mesh) {
  return parallel::MeshShape(mesh).size(Axis::tp);
}

// The bits of what a rank updates, by the name in the whole model.
using Bits = std::map<std::string, std::vector<std::byte>>;

inline Bits bits_of(const ParallelStrategy::LocalParameters& local,
                    const transformer::ParameterTable& table) {
  Bits bits;
  for (const auto& [name, tensor] : local.tensors) {
    const std::size_t bytes =
        static_cast<std::size_t>(tensor.elements()) * autograd::size_of(tensor.dtype());
    bits[table.entry(name).name].assign(tensor.address(), tensor.address() + bytes);
  }
  return bits;
}

// Ranks that hold the same elements of a parameter must hold the same bits.
inline void check_copies(const MeshCase& mesh, const Config& config, bool sharded,
                         const std::vector<Bits>& bits) {
  const cli::MeshPlan plan = mesh.plan();
  const parallel::MeshShape& shape = plan.shape;
  const transformer::ParameterTable table(config);
  int compared = 0;
  for (int a = 0; a < shape.ranks(); ++a)
    for (int b = a + 1; b < shape.ranks(); ++b) {
      if (sharded && shape.coordinate(a, Axis::dp) != shape.coordinate(b, Axis::dp)) continue;
      const auto part_a = cli::part_of_rank(plan, config, a),
                 part_b = cli::part_of_rank(plan, config, b);
      for (const ParameterEntry& entry : table.entries()) {
        if (!name_in(part_a, entry) || !name_in(part_b, entry)) continue;
        if (entry.region(part_a.tensor_rank, part_a.tensor_ranks).begin !=
            entry.region(part_b.tensor_rank, part_b.tensor_ranks).begin)
          continue;
        const auto of_a = bits[static_cast<std::size_t>(a)].find(entry.name),
                   of_b = bits[static_cast<std::size_t>(b)].find(entry.name);
        const bool has_a = of_a != bits[static_cast<std::size_t>(a)].end(),
                   has_b = of_b != bits[static_cast<std::size_t>(b)].end();
        CAPTURE(entry.name);
        CHECK(has_a == has_b);
        if (!has_a || !has_b) continue;
        CHECK(of_a->second == of_b->second);
        ++compared;
      }
    }
  const auto& rank_of = plan.schedule.rank_of;
  const bool has_tied_copies =
      config.tied_head && !rank_of.empty() && rank_of.front() != rank_of.back();
  const bool has_copies =
      shape.size(Axis::tp) > 1 || has_tied_copies || (shape.size(Axis::dp) > 1 && !sharded);
  if (has_copies) CHECK(compared > 0);
}

// Trains on the mesh, and compares with `expected`.
inline void check(const Problem& problem, const MeshCase& given, const History& expected,
                  double gradient_bar, double norm_bar) {
  MeshCase mesh = given;
  mesh.micro_batches = problem.accumulate;
  CAPTURE(mesh.mesh);
  CAPTURE(mesh.schedule);
  CAPTURE(mesh.inner);
  CAPTURE(mesh.sequence_parallel);
  CAPTURE(problem.kv_heads);
  CAPTURE(problem.tied);
  for (const double norm : expected.norms) REQUIRE(norm > problem.options().clip);
  History seen;
  std::vector<Bits> bits(static_cast<std::size_t>(mesh.plan().shape.ranks()));
  std::mutex guard;
  bool sharded = false;
  on_mesh(mesh, problem.config(), [&](auto strategy, auto& world) {
    History own;
    train_into(own, problem, std::move(strategy), [&](const Trainer& trainer) {
      const auto local = trainer.strategy().local_parameters(trainer.optimizer());
      const std::lock_guard lock(guard);
      sharded = local.is_sharded;
      bits[static_cast<std::size_t>(world.rank())] =
          bits_of(local, transformer::ParameterTable(problem.config()));
    });
    if (world.rank() == 0) seen = std::move(own);
  });
  const Worst worst = compare(expected, seen);
  CHECK(worst.gradient < gradient_bar);
  CHECK(worst.norm < norm_bar);
  CHECK(worst.loss < norm_bar);
  CHECK(worst.parameter < gradient_bar);
  CHECK(seen.validation == doctest::Approx(expected.validation).epsilon(norm_bar * 10));
  check_copies(mesh, problem.config(), sharded, bits);
}

// ... with a single process in the same dtype.
inline void check(const Problem& problem, const MeshCase& mesh, double bar) {
  check(problem, mesh, alone(problem), bar, bar);
}

// The problems rotate over meshes and strategies, so that each mesh meets tied and untied heads,
// many and few key and value heads, with and without divided sequences.
inline Problem problem_number(std::size_t i, const std::string& mesh) {
  Problem problem;
  const int t = tensor_ranks(mesh);
  problem.kv_heads = i % 2 == 0 && (2 % t == 0 || t % 2 == 0) ? 2 : 12;
  problem.tied = i / 2 % 2 == 1;
  return problem;
}

}  // namespace ringside::testing
