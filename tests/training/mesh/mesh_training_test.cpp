// Training on small meshes beside a single process: every strategy, and every transport. The whole
// table of meshes is in mesh_product_test.cpp.
#include "base/error.hpp"
#include "tests/training/mesh/mesh_check.hpp"

using namespace ringside;
using namespace ringside::testing;

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

// fsdp shards, and dp copies: HSDP.
TEST_CASE("mesh: shards along fsdp, copies along dp, with every stage of ZeRO") {
  Problem problem;
  problem.layers = 3;
  problem.steps = 4;
  problem.kv_heads = 2;
  problem.tied = true;
  for (const std::string mesh :
       {"fsdp=2", "fsdp=3", "dp=2,fsdp=2", "fsdp=2,dp=2", "dp=3,fsdp=2", "fsdp=2,tp=2",
        "dp=2,fsdp=2,tp=2", "tp=2,fsdp=2,dp=2", "dp=2,fsdp=4", "pp=2,dp=2,fsdp=2"})
    for (const std::string inner : {"zero1", "zero2", "zero3"}) {
      const std::int64_t share = 24 / parallel::MeshShape(mesh).data_ranks();
      problem.accumulate = mesh[0] == 'p' ? 2 : inner != "zero2" ? 1 : share % 3 == 0 ? 3 : 2;
      check(problem, {mesh, inner, mesh.find("tp") != mesh.npos && inner == "zero2"}, 1e-12);
    }
}

// PowerSGD of full rank takes nothing away, whatever the part of the model that a rank holds.
TEST_CASE("mesh: PowerSGD of full rank beside a single process") {
  Problem problem;
  problem.layers = 4;
  problem.steps = 4;
  problem.sequence = 24;
  for (const char* mesh : {"dp=2,tp=2", "dp=2,cp=2", "tp=2,dp=3"}) {
    problem.tied = !problem.tied;
    check(problem, {mesh, "powersgd:1000"}, 1e-11);
  }
  problem.accumulate = 2;
  check(problem, {"pp=2,dp=2", "powersgd:1000"}, 1e-11);
}

// Gradients stay those of a replica, so parameters are compared; without clipping, which goes by
// the norm of a replica.
TEST_CASE("mesh: local SGD with rounds of one step beside a single process") {
  Problem problem;
  problem.layers = 4;
  problem.steps = 4;
  problem.kv_heads = 2;
  problem.clip = 0;
  problem.learning_rate = 0.03;
  for (const char* text : {"dp=2,tp=2", "pp=2,dp=2", "dp=4"}) {
    CAPTURE(text);
    problem.accumulate = text[0] == 'p' ? 2 : 1;
    MeshCase mesh{text, "local_sgd:1"};
    mesh.micro_batches = problem.accumulate;
    History seen;
    on_mesh(mesh, problem.config(), [&](auto strategy, auto& world) {
      History own;
      train_into(own, problem, std::move(strategy));
      if (world.rank() == 0) seen = std::move(own);
    });
    const History& expected = alone(problem);
    for (const auto& [name, parameter] : expected.parameters) {
      CAPTURE(name);
      CHECK(difference(parameter, seen.parameters.at(name)) < 1e-12);
    }
    CHECK(seen.losses.back() == doctest::Approx(expected.losses.back()).epsilon(1e-12));
  }
}

TEST_CASE("mesh: replicas that are updated apart cannot share a sequence or the experts") {
  Problem problem;
  const MeshCase mesh{"dp=2,cp=2", "diloco"};
  CHECK_THROWS_WITH_AS(
      training::require_divisible(mesh.plan(), problem.config(), problem.options(), mesh.inner),
      "--parallel diloco lets the ranks of dp update their replicas apart, but in --mesh dp=2,cp=2 "
      "the gradients of cp or ep come together in every step: choose another strategy, or leave "
      "out these axes",
      Error);
}

// Sub-groups and messages over sockets and shared memory.
TEST_CASE("mesh: over threads, tcp and shm, on 2, 3, 4 and 8 ranks") {
  for (const char* const transport : {"threads", "tcp", "shm"}) {
    Problem problem;
    problem.layers = 6;
    problem.steps = 2;
    problem.accumulate = 6;
    problem.tied = true;
    problem.kv_heads = 2;
    for (const MeshCase& each : std::vector<MeshCase>{{"pp=2", "single", false, "zb_v"},
                                                      {"pp=3", "single", false, "interleaved"},
                                                      {"pp=2,tp=2", "single", true, "zb_h1"},
                                                      {"dp=2,tp=2", "zero3", true},
                                                      {"dp=2,fsdp=2", "zero2"},
                                                      {"pp=2,dp=2,tp=2", "zero1", true, "1f1b"}}) {
      MeshCase mesh = each;
      mesh.transport = transport;
      check(problem, mesh, 1e-12);
    }
  }
}
