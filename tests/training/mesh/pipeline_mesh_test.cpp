// Training over pipelines: the bits of a single process where nothing else is divided; what travels
// between stages, what a stage keeps, and what is refused.
#include <fstream>

#include "base/error.hpp"
#include "collectives/execution/traffic.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/lower.hpp"
#include "parallel/pipeline/proof/verify.hpp"
#include "tests/text.hpp"
#include "tests/training/mesh/mesh_check.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside;
using namespace ringside::testing;
using parallel::Axis;
using tests::contains;

namespace {

void require_same_bits(const Problem& problem, MeshCase mesh) {
  if (!mesh_cases.takes()) return;
  CAPTURE(mesh.mesh);
  CAPTURE(mesh.schedule);
  CAPTURE(problem.layers);
  CAPTURE(problem.accumulate);
  mesh.inner = "single";
  mesh.micro_batches = problem.accumulate;
  Problem plain = problem;
  plain.recompute = {};
  const History& expected = alone(plain);
  History seen;
  on_mesh(mesh, problem.config(), [&](auto strategy, auto& world) {
    History own;
    train_into(own, problem, std::move(strategy));
    if (world.rank() == 0) seen = std::move(own);
  });
  CHECK(seen.losses == expected.losses);
  CHECK(seen.norms == expected.norms);
  CHECK(seen.gradients == expected.gradients);
  CHECK(seen.parameters == expected.parameters);
  CHECK(seen.validation == doctest::Approx(expected.validation).epsilon(1e-12));
}

}  // namespace

TEST_CASE("pipeline: every schedule has the bits of a single process with as many micro-batches") {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16})
    for (const char* const mesh : {"pp=2", "pp=3", "pp=4"})
      for (const std::string& schedule : schedules) {
        Problem problem;
        problem.dtype = dtype;
        problem.kv_heads = 2;
        problem.accumulate = micro_batches_for(schedule, parallel::MeshShape(mesh));
        if (dtype != DType::fp64) problem.steps = 3;
        require_same_bits(problem, {mesh, "single", false, schedule});
      }
}

TEST_CASE(
    "pipeline: uneven layers, one micro-batch, recomputed blocks, and a file: the same bits") {
  Problem problem;
  problem.layers = 7;  // 2, 3 and 2 on three ranks
  problem.steps = 3;
  for (const std::int64_t micro_batches : {1, 2, 3}) {
    problem.accumulate = micro_batches;
    for (const std::string schedule : {"gpipe", "1f1b", "zb_h1", "zb_v"})
      require_same_bits(problem, {"pp=3", "single", false, schedule});
  }
  problem.recompute = {1};
  for (const std::string schedule : {"1f1b", "interleaved", "zb_h1"})
    require_same_bits(problem, {"pp=3", "single", false, schedule});
  problem.accumulate = 2;
  const TemporaryDirectory directory;
  const auto file = directory.path() / "mine.csv";
  std::ofstream(file) << "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n";
  require_same_bits(problem, {"pp=2", "single", false, "csv:" + file.string()});
}

// The first and the last stage share a rank and a matrix, which gets a gradient from both.
TEST_CASE("pipeline: a tied matrix, on two ranks as copies, on one rank as one") {
  Problem problem;
  problem.tied = true;
  problem.layers = 8;
  problem.steps = 4;
  problem.accumulate = 4;
  for (const std::string& schedule : schedules)
    for (const std::string inner : {"naive", "overlap", "bucketed", "zero1", "zero2", "zero3"})
      check(problem, {"pp=2,dp=2", inner, false, schedule}, 1e-12);
}

// A file may end a step with either of the two stages.
TEST_CASE("pipeline: a tied matrix is reduced after the later of its two stages") {
  Problem problem;
  problem.tied = true;
  problem.layers = 8;
  problem.steps = 4;
  problem.accumulate = 2;
  const TemporaryDirectory directory;
  const auto file = directory.path() / "mine.csv";
  std::ofstream(file) << "0F0,0F1,3F0,3F1,3I0,3I1,0I0,0W0,0I1,0W1,3W0,3W1\n"
                         "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n";
  for (const std::string inner :
       {"naive", "flat", "overlap", "bucketed", "zero1", "zero2", "zero3"})
    check(problem, {"pp=2,dp=2", inner, false, "csv:" + file.string()}, 1e-12);
}

// m micro-batches of T tokens, d wide, e bytes each: m T d e over each boundary in each direction.
TEST_CASE("pipeline: bytes of each rank, and the activations that a stage keeps, are exact") {
  for (const DType dtype : {DType::fp64, DType::bf16})
    for (const MeshCase& each : std::vector<MeshCase>{{"pp=2", "single", false, "gpipe"},
                                                      {"pp=4", "single", false, "1f1b"},
                                                      {"pp=2", "single", false, "interleaved"},
                                                      {"pp=3", "single", false, "zb_h1"},
                                                      {"pp=2,tp=2", "single", true, "zb_v"},
                                                      {"pp=2,dp=2,tp=2", "zero1", true, "1f1b"}}) {
      MeshCase mesh = each;
      Problem problem;
      problem.dtype = dtype;
      problem.steps = 2;
      problem.layers = 6;
      mesh.micro_batches = problem.accumulate =
          micro_batches_for(mesh.schedule, parallel::MeshShape(mesh.mesh));
      CAPTURE(mesh.mesh);
      CAPTURE(mesh.schedule);
      const training::MeshPlan plan = mesh.plan();
      const std::int64_t tensor_ranks = plan.shape.size(Axis::tp);
      const std::uint64_t of_a_boundary = 24 / plan.data_ranks() * 12 * 48 /
                                          (mesh.sequence_parallel ? tensor_ranks : 1) *
                                          autograd::size_of(dtype);
      on_mesh(mesh, problem.config(), [&](auto given, auto&) {
        Model model(problem.config(), dtype, autograd::Device::cpu, given->part(),
                    given->model_ranks());
        const auto strategy = std::move(given);  // destroyed before the model
        Trainer trainer(model, mesh_corpus(), *strategy, problem.options());
        trainer.run();
        const int rank = strategy->mesh().coordinate(Axis::pp);
        std::uint64_t boundaries = 0;  // that this rank sends over, in either direction
        for (int stage = 0; stage + 1 < plan.schedule.stages(); ++stage) {
          const int here = plan.schedule.rank_of[stage], next = plan.schedule.rank_of[stage + 1];
          if (here != next) boundaries += (here == rank) + (next == rank);
        }
        const collectives::Traffic sent = strategy->pipeline()->messages().traffic();
        require(sent.payload_bytes_sent == 2 * boundaries * of_a_boundary,
                "{} bytes, expected {} boundaries of {}", sent.payload_bytes_sent, 2 * boundaries,
                of_a_boundary);
        require(sent.messages_sent == 2 * boundaries * mesh.micro_batches, "{} messages",
                sent.messages_sent);
        const int expected = most_in_flight(plan.schedule)[rank];
        require(strategy->pipeline()->most_held() == expected, "{} held, expected {}",
                strategy->pipeline()->most_held(), expected);
      });
    }
}

// Nothing of a step may outlive it: no tensor that was sent, no graph, no deferred gradient.
TEST_CASE("pipeline: after each step the memory is that of the first") {
  Problem problem;
  problem.layers = 4;
  problem.accumulate = 4;
  for (const std::string& schedule : schedules)
    on_mesh({"pp=2", "bucketed", false, schedule, 4}, problem.config(),
            [&](auto given, auto& world) {
              Model model(problem.config(), problem.dtype, autograd::Device::cpu, given->part(),
                          given->model_ranks());
              const auto strategy = std::move(given);  // destroyed before the model
              Trainer trainer(model, mesh_corpus(), *strategy, problem.options());
              const auto in_use = [&] {
                world.barrier();
                return autograd::memory_use(autograd::MemoryKind::activations).current;
              };
              trainer.step();
              const auto first = in_use();
              for (int step = 0; step < 3; ++step) trainer.step();
              require(in_use() == first, "activations grew from {} to {} bytes", first, in_use());
            });
}

TEST_CASE("pipeline: a rank that fails in a stage ends all ranks with a sentence that names it") {
  Problem problem;
  problem.layers = 4;
  problem.accumulate = 2;
  std::string text;
  try {
    on_mesh(
        {"pp=2,tp=2", "single", false, "1f1b", 2}, problem.config(), [&](auto given, auto& world) {
          Model model(problem.config(), problem.dtype, autograd::Device::cpu, given->part(),
                      given->model_ranks());
          const auto strategy = std::move(given);  // destroyed before the model
          for (const auto& [name, module] : model.named_modules())
            if (world.rank() == 3 && name == "model.layers.3")
              module->register_forward_pre_hook([] { fail("no more memory"); });
          try {
            Trainer(model, mesh_corpus(), *strategy, problem.options()).run();
          } catch (const std::exception& error) {
            strategy->give_up(error.what());  // before its groups are left, as in `ringside train`
            throw;
          }
        });
  } catch (const Error& error) {
    text = error.what();
  }
  CAPTURE(text);
  CHECK(contains(text,
                 "stage 1 (rank 3, pp=1,tp=1) failed in forward of micro-batch 0: no more memory"));
}

TEST_CASE("pipeline: what does not fit is refused with a sentence that says what would") {
  const auto text_of = [](const Problem& problem, const MeshCase& mesh) -> std::string {
    try {
      training::require_divisible(mesh.plan(), problem.config(), problem.options(), mesh.inner);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  Problem problem;
  problem.layers = 3;
  CHECK(text_of(problem, {"pp=2", "single", false, "interleaved", 4}) ==
        "3 layers cannot be divided among the 4 stages of interleaved on 2 pipeline ranks, which "
        "need one layer each: choose a smaller pp, fewer --stages-per-rank, or more --layers");
  CHECK(contains(text_of(problem, {"pp=2", "single", false, "interleaved", 3}), "interleaved"));
  CHECK(contains(text_of(problem, {"pp=2", "single", false, "2f2b", 4}), "gpipe, 1f1b"));
  CHECK(text_of(problem, {"pp=2", "single", false, "1f1b", (std::int64_t{1} << 32) + 4}) ==
        "4294967300 micro-batches are too many: at most 65536");
  CHECK_THROWS_WITH_AS(on_mesh({"pp=2", "single", false, "1f1b", 1}, problem.config(),
                               [&](auto given, auto&) {
                                 Model model(problem.config(), problem.dtype, autograd::Device::cpu,
                                             given->part(), given->model_ranks());
                                 const auto strategy = std::move(given);
                                 model.named_parameters().back().tensor.set_requires_grad(false);
                                 Trainer(model, mesh_corpus(), *strategy, problem.options());
                               }),
                       doctest::Contains(" is frozen, but a mesh trains all parameters"), Error);
  problem.accumulate = 5;
  try {
    training::validate(problem.options(), problem.config(), 2);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(contains(error.what(), "12 sequences does not divide into 5 micro-batches"));
  }
}
