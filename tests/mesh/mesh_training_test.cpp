// Training on every mesh of data-parallel and tensor-parallel ranks: every gradient of every step
// is that of a single process, clipping included, and copies have the same bits.
#include "tests/mesh/mesh_check.hpp"

#include <cstring>

using namespace ringside;
using namespace ringside::testing;
using parallel::Axis;

namespace {

// All (dp, tp) of 2, 3, 4, 6 and 8 ranks that can divide 12 heads.
const std::vector<std::string> meshes = {
    "dp=2",      "tp=2",      "dp=3", "tp=3",      "dp=4", "dp=2,tp=2", "tp=4",     "dp=6",
    "dp=3,tp=2", "dp=2,tp=3", "tp=6", "tp=2,dp=3", "dp=8", "dp=4,tp=2", "dp=2,tp=4"};

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
