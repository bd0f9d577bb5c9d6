// Training with experts beside a single process: expert parallel alone and with every other axis,
// every data-parallel strategy, and the checkpoint of each mesh.
#include "base/error.hpp"
#include "tests/text.hpp"
#include "tests/training/mesh/mesh_check.hpp"

using namespace ringside;
using namespace ringside::testing;
using context_parallel::Exchange;
using context_parallel::TokenOrder;
using tests::contains;

namespace {

Problem with_experts(std::int64_t experts) {
  Problem problem;
  problem.layers = 2;
  problem.steps = 4;
  problem.experts = experts;
  return problem;
}

struct Mesh {
  std::string text, inner = "bucketed", schedule = "1f1b";
  std::int64_t accumulate = 1;
  std::int64_t experts = 12;
};

}  // namespace

TEST_CASE("expert parallel, fp64: every gradient, with every strategy on 2, 3 and 4 ranks") {
  Problem problem = with_experts(12);
  problem.steps = many_steps;
  for (const char* mesh : {"ep=2", "ep=3", "ep=4"})
    for (const char* inner : {"flat", "bucketed"}) check(problem, {mesh, inner}, 1e-12);
  for (const char* mesh : {"ep=2,dp=2", "dp=2,ep=2", "ep=2,dp=3"})
    for (const char* inner : {"naive", "overlap", "zero1", "zero2", "zero3"})
      check(problem, {mesh, inner}, 1e-12);
}

TEST_CASE("experts, fp64: with tensor, pipeline, context and sharded data parallel") {
  const std::vector<Mesh> meshes = {{"tp=2"},
                                    {"dp=3"},
                                    {"fsdp=2", "zero3"},
                                    {"cp=2"},
                                    {"pp=2", "bucketed", "1f1b", 2},
                                    {"ep=2,tp=2"},
                                    {"ep=2,tp=3", "zero1"},
                                    {"ep=2,cp=2"},
                                    {"ep=2,cp=2", "zero3"},
                                    {"ep=2,fsdp=2", "zero3"},
                                    {"fsdp=2,ep=2", "zero2", "1f1b", 3},
                                    {"dp=2,fsdp=2,ep=2", "zero3"},
                                    {"pp=2,ep=2", "bucketed", "1f1b", 2},
                                    {"pp=2,ep=2", "zero1", "zb_h1", 4},
                                    {"pp=2,ep=3,tp=2", "bucketed", "gpipe", 2}};
  std::size_t turn = 0;
  for (const Mesh& mesh : meshes) {
    Problem problem = with_experts(mesh.experts);
    problem.accumulate = mesh.accumulate;
    problem.tied = turn % 2 == 1;
    problem.kv_heads = turn++ % 2 == 1 ? 2 : 12;
    check(problem,
          {mesh.text,
           mesh.inner,
           false,
           mesh.schedule,
           1,
           0,
           "threads",
           {turn % 2 == 0 ? Exchange::ring : Exchange::all_gather, TokenOrder::zigzag}},
          1e-12);
  }
}

// Norms of heads have one weight for all heads, which tensor ranks divide: each has the gradient of
// its own. With 2 key heads on 4 ranks two ranks share a head.
TEST_CASE("Qwen3 and Qwen3-MoE, fp64: every gradient on meshes with every axis") {
  const std::vector<Mesh> meshes = {{"tp=2"},
                                    {"tp=4", "bucketed", "1f1b", 1, 0},
                                    {"ep=2,tp=2", "zero1"},
                                    {"fsdp=2,tp=2", "zero3"},
                                    {"cp=2,tp=2", "zero2"},
                                    {"pp=2,tp=2", "bucketed", "zb_h1", 2},
                                    {"pp=2,ep=2", "bucketed", "dualpipe_v", 4}};
  std::size_t turn = 0;
  for (const Mesh& mesh : meshes) {
    Problem problem = with_experts(mesh.experts);
    problem.qk_norm = true;
    problem.layers = 4;
    problem.accumulate = mesh.accumulate;
    problem.tied = turn++ % 2 == 1;
    problem.kv_heads = 2;
    check(problem, {mesh.text, mesh.inner, false, mesh.schedule}, 1e-12);
  }
  Problem dense;
  dense.qk_norm = true;
  dense.layers = 2, dense.steps = 4;
  dense.kv_heads = 2;
  check(dense, {"tp=4", "bucketed", true}, 1e-12);
}

TEST_CASE(
    "expert parallel over tcp and shm, with recomputation, and with more ranks than choices") {
  Problem problem = with_experts(4);
  problem.steps = 2;
  for (const char* transport : {"tcp", "shm"})
    check(problem, {"ep=4", "bucketed", false, "1f1b", 1, 0, transport}, 1e-12);
  problem.recompute = {1};
  check(problem, {"ep=2,fsdp=2", "zero3"}, 1e-12);
}

// The check assumes equal load. A router that is not trained yet gives the busiest of 4 ranks a
// third more.
TEST_CASE("a rank holds its experts and their activations, as the check says") {
  Problem problem = with_experts(8);
  problem.dtype = DType::fp32;
  problem.layers = 6;
  problem.steps = 2;
  problem.sequence = 96;
  const Config config = problem.config();
  for (const std::string mesh : {"ep=1", "ep=2", "ep=4"}) {
    CAPTURE(mesh);
    const MeshCase each{mesh, "flat"};
    const auto predicted = need_of(each, config, problem.dtype, problem.options());
    std::mutex guard;
    double most = 0;
    on_mesh(each, config, [&](auto given, auto&) {
      Model model(config, problem.dtype, autograd::Device::cpu, given->part(),
                  given->model_ranks());
      std::int64_t parameters = 0;
      for (const NamedTensor& held : model.named_parameters()) parameters += held.tensor.elements();
      CHECK(4 * parameters == static_cast<std::int64_t>(predicted.parameters));
      const auto strategy = std::move(given);
      Trainer trainer(model, mesh_corpus(), *strategy, problem.options());
      trainer.step();
      autograd::reset_peak_memory();
      trainer.step();
      const std::lock_guard lock(guard);
      most = std::max(
          most, static_cast<double>(autograd::memory_use(autograd::MemoryKind::activations).peak));
    });
    const double expected = predicted.activations;
    CHECK(most > 0.98 * expected);
    CHECK(most < (each.plan().shape.ranks() == 1 ? 1.02 : 1.4) * expected);
  }
}

TEST_CASE("experts on a mesh that cannot hold them are refused with a sentence") {
  const auto refusal = [](const Problem& problem, const MeshCase& mesh) -> std::string {
    try {
      training::require_divisible(mesh.plan(), problem.config(), problem.options(), mesh.inner);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(contains(refusal(with_experts(0), {"ep=2"}),
                 "ep divides the experts of a model among 2 ranks, but this model has none"));
  CHECK(contains(refusal(with_experts(4), {"ep=3"}),
                 "4 experts cannot be divided evenly among 3 expert-parallel ranks: choose an ep "
                 "that divides 4"));
  CHECK(contains(refusal(with_experts(4), {"tp=2", "flat", true}),
                 "--sequence-parallel does not work with experts"));
  CHECK(contains(refusal(with_experts(4), {"ep=2", "single"}),
                 "--parallel single trains one copy of the model, but --mesh ep=2 has 2"));
  CHECK(refusal(with_experts(4), {"ep=4", "flat"}) == "");
}
