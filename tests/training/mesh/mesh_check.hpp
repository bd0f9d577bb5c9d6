// Trains on a mesh and alone, and compares: gradients, norms, losses, parameters, and the bits of
// copies.
#pragma once

#include "parallel/pipeline/generators/catalogue.hpp"
#include "tests/training/mesh/mesh_run.hpp"

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

// Whether two ranks hold the same shards: those of other coordinates along the inner axes hold
// others.
inline bool same_shards(const parallel::MeshShape& shape, int a, int b) {
  for (const Axis axis : training::gradient_axes(shape).inner)
    if (shape.coordinate(a, axis) != shape.coordinate(b, axis)) return false;
  return true;
}

// Ranks that hold the same elements of a parameter must hold the same bits.
inline void check_copies(const MeshCase& mesh, const Config& config, bool sharded,
                         const std::vector<Bits>& bits) {
  const training::MeshPlan plan = mesh.plan();
  const parallel::MeshShape& shape = plan.shape;
  const transformer::ParameterTable table(config);
  int compared = 0, tied = 0;
  for (int a = 0; a < shape.ranks(); ++a)
    for (int b = a + 1; b < shape.ranks(); ++b) {
      if (sharded && !same_shards(shape, a, b)) continue;
      const auto part_a = training::part_of_rank(plan, config, a),
                 part_b = training::part_of_rank(plan, config, b);
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
        if (name_in(part_a, entry) != name_in(part_b, entry)) ++tied;  // embedding and its copy
      }
    }
  const auto& rank_of = plan.schedule.rank_of;
  const bool has_tied_copies =
      config.tied_head && !rank_of.empty() && rank_of.front() != rank_of.back();
  const bool has_copies =
      shape.size(Axis::tp) > 1 || has_tied_copies ||
      (sharded ? shape.size(training::gradient_axes(shape).copies) > 1 : plan.gradient_ranks() > 1);
  if (has_copies) CHECK(compared > 0);
  if (has_tied_copies) CHECK(tied > 0);
}

// What a difference must stay below.
struct Bars {
  double gradient;       // of each entry of each gradient of each step
  double mean_gradient;  // of each gradient as a whole
  double parameter;
  double norm;
  double loss;
  explicit Bars(double all)
      : gradient(all), mean_gradient(all), parameter(all), norm(all), loss(all) {}
};

// Trains on the mesh, and compares with `expected`.
inline void check(const Problem& problem, const MeshCase& given, const History& expected,
                  const Bars& bars) {
  MeshCase mesh = given;
  mesh.micro_batches = problem.accumulate;
  CAPTURE(mesh.mesh);
  CAPTURE(mesh.schedule);
  CAPTURE(mesh.inner);
  CAPTURE(mesh.sequence_parallel);
  CAPTURE(mesh.transport);
  CAPTURE(name_of(mesh.context.exchange));
  CAPTURE(name_of(mesh.context.order));
  CAPTURE(problem.kv_heads);
  CAPTURE(problem.tied);
  CAPTURE(problem.accumulate);
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
  CHECK(worst.gradient < bars.gradient);
  CHECK(worst.mean_gradient < bars.mean_gradient);
  CHECK(worst.norm < bars.norm);
  CHECK(worst.loss < bars.loss);
  CHECK(worst.parameter < bars.parameter);
  CHECK(seen.validation == doctest::Approx(expected.validation).epsilon(bars.loss * 10));
  check_copies(mesh, problem.config(), sharded, bits);
}

// ... with a single process in the same dtype.
inline void check(const Problem& problem, const MeshCase& mesh, double bar) {
  if (!mesh_cases.takes()) return;
  check(problem, mesh, alone(problem), Bars(bar));
}

// The first of these numbers of micro-batches that divides the share of a data rank and that the
// schedule takes; 0 if there is none. Without a pipeline 1.
inline std::int64_t micro_batches_for(const std::string& schedule,
                                      const parallel::MeshShape& shape) {
  const int ranks = shape.size(Axis::pp);
  if (ranks == 1) return 1;
  const std::int64_t share = 24 / shape.data_ranks();
  for (const pipeline_parallel::Generator& generator : pipeline_parallel::all_generators())
    for (const std::int64_t count : {4, 6, 8, 3, 12, 2})
      if (generator.name == schedule && share % count == 0 &&
          generator.default_stages_per_rank * ranks <= 12 &&
          why_not(generator, ranks, static_cast<int>(count)).empty())
        return count;
  return 0;
}

inline const std::vector<std::string> schedules = {"gpipe", "1f1b", "interleaved",    "looped_bfs",
                                                   "zb_h1", "zb_v", "interleaved_zb", "dualpipe_v"};

}  // namespace ringside::testing
