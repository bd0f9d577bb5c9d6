// Training on every mesh of data-parallel and tensor-parallel ranks: every gradient of every step
// is that of a single process, clipping included, and copies have the same bits.
#include "tests/mesh/mesh_run.hpp"

#include <cstring>

using namespace ringside;
using namespace ringside::testing;
using parallel::Axis;
using transformer::ParameterEntry;

namespace {

// All (dp, tp) of 2, 3, 4, 6 and 8 ranks that can divide 12 heads.
const std::vector<std::string> meshes = {
    "dp=2",      "tp=2",      "dp=3", "tp=3",      "dp=4", "dp=2,tp=2", "tp=4",     "dp=6",
    "dp=3,tp=2", "dp=2,tp=3", "tp=6", "tp=2,dp=3", "dp=8", "dp=4,tp=2", "dp=2,tp=4"};

int tensor_ranks(const std::string& mesh) {
  return parallel::MeshShape(mesh).size(Axis::tp);
}

// The bits of what a rank updates, by the name in the whole model.
using Bits = std::map<std::string, std::vector<std::byte>>;

Bits bits_of(const ParallelStrategy::LocalParameters& local,
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
void check_copies(const MeshCase& mesh, const Config& config, bool sharded,
                  const std::vector<Bits>& bits) {
  const parallel::MeshShape shape = mesh.plan().shape;
  const transformer::ParameterTable table(config);
  int compared = 0;
  for (int a = 0; a < shape.ranks(); ++a)
    for (int b = a + 1; b < shape.ranks(); ++b) {
      if (sharded && shape.coordinate(a, Axis::dp) != shape.coordinate(b, Axis::dp)) continue;
      const auto part_a = cli::part_of_rank(shape, config, a),
                 part_b = cli::part_of_rank(shape, config, b);
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
  if (shape.ranks() > shape.size(Axis::dp) || !sharded) CHECK(compared > 0);
}

// Trains on the mesh, and compares with `expected`.
void check(const Problem& problem, const MeshCase& mesh, const History& expected,
           double gradient_bar, double norm_bar) {
  CAPTURE(mesh.mesh);
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
void check(const Problem& problem, const MeshCase& mesh, double bar) {
  check(problem, mesh, alone(problem), bar, bar);
}

// The problems rotate over meshes and strategies, so that each mesh meets tied and untied heads,
// many and few key and value heads, with and without divided sequences.
Problem problem_number(std::size_t i, const std::string& mesh) {
  Problem problem;
  const int t = tensor_ranks(mesh);
  problem.kv_heads = i % 2 == 0 && (2 % t == 0 || t % 2 == 0) ? 2 : 12;
  problem.tied = i / 2 % 2 == 1;
  return problem;
}

}  // namespace

TEST_CASE("mesh: every gradient is that of a single process in fp64, with bucketed, zero1, zero3") {
  std::size_t i = 0;
  for (const std::string& mesh : meshes) {
    for (const std::string inner : {"bucketed", "zero1", "zero3"}) {
      const bool sequence = tensor_ranks(mesh) > 1 && i % 3 != 0;
      check(problem_number(i, mesh), {mesh, inner, sequence}, 1e-12);
      ++i;
    }
  }
}

TEST_CASE("mesh: the other strategies, and micro-batches, on two by two ranks") {
  Problem problem;
  problem.layers = 3;
  problem.steps = 4;
  problem.kv_heads = 2;
  for (const std::string inner : {"naive", "flat", "overlap", "zero2"})
    check(problem, {"dp=2,tp=2", inner, inner == "zero2"}, 1e-12);
  problem.accumulate = 3;
  for (const std::string inner : {"bucketed", "zero1", "zero2", "zero3"})
    check(problem, {"tp=2,dp=2", inner, inner == "zero3"}, 1e-12);
  check(problem, {"tp=4", "single", true}, 1e-12);
}

// Rounding to 8 bits makes single entries of a gradient differ from fp32 by up to 7 per cent of the
// largest one on a single process. On a mesh the terms of a sum are rounded too: it may differ
// twice as much. Losses and norms keep to 2 per cent.
TEST_CASE("mesh: fp32 and bf16 follow a single process as closely as their bits allow") {
  std::size_t i = 0;
  for (const std::string mesh : {"tp=2", "dp=2,tp=2", "tp=4", "dp=3,tp=2"}) {
    for (const std::string inner : {"bucketed", "zero1", "zero3"}) {
      Problem problem = problem_number(i, mesh);
      problem.layers = 4;
      problem.steps = 3;
      problem.dtype = DType::fp32;
      const MeshCase mesh_case{mesh, inner, i % 2 == 1};
      check(problem, mesh_case, 1e-5);
      const History& fp32 = alone(problem);
      problem.dtype = DType::bf16;
      const double rounding = compare(fp32, alone(problem)).gradient;
      CAPTURE(rounding);
      check(problem, mesh_case, fp32, 2 * rounding, 2e-2);
      ++i;
    }
  }
}
