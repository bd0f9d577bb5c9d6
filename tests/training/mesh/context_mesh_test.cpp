// Training with context parallel beside a single process: every exchange and order, alone and with
// every other axis; activations by ledger; checkpoints.
#include "base/error.hpp"
#include "tests/text.hpp"
#include "tests/training/mesh/mesh_check.hpp"

using namespace ringside;
using namespace ringside::testing;
using context_parallel::Exchange;
using context_parallel::TokenOrder;
using tests::contains;

namespace {

const std::vector<context_parallel::ContextOptions> all_contexts = {
    {Exchange::all_gather, TokenOrder::contiguous}, {Exchange::all_gather, TokenOrder::zigzag},
    {Exchange::ring, TokenOrder::contiguous},       {Exchange::ring, TokenOrder::zigzag},
    {Exchange::ulysses, TokenOrder::contiguous},    {Exchange::ulysses, TokenOrder::zigzag}};

Problem long_problem() {
  Problem problem;
  problem.layers = 3;
  problem.steps = 4;
  problem.sequence = 24;
  return problem;
}

}  // namespace

TEST_CASE("context parallel, fp64: every gradient, each exchange and order on 2, 3 and 4 ranks") {
  Problem problem = long_problem();
  problem.steps = many_steps;
  for (const std::int64_t kv_heads : {12, 2})
    for (const char* mesh : {"cp=2", "cp=3", "cp=4"})
      for (const auto& options : all_contexts) {
        const int c = parallel::MeshShape(mesh).size(Axis::cp);
        if (options.exchange == Exchange::ulysses && kv_heads % c != 0) continue;
        problem.kv_heads = kv_heads;
        problem.tied = kv_heads == 2;
        check(problem, {mesh, "bucketed", false, "1f1b", 1, 0, "threads", options}, 1e-12);
      }
}

TEST_CASE(
    "context parallel, fp64: with tensor, pipeline and data parallel and every stage of ZeRO") {
  struct Mesh {
    std::string text, inner, schedule = "1f1b";
    bool sequence_parallel = false;
    std::int64_t accumulate = 1;
  };
  const std::vector<Mesh> meshes = {{"cp=2,tp=2", "flat"},
                                    {"cp=2,tp=2", "bucketed", "1f1b", true},
                                    {"tp=2,cp=3", "zero1", "1f1b", true},
                                    {"dp=2,cp=2", "bucketed"},
                                    {"dp=2,cp=2", "zero2", "1f1b", false, 3},
                                    {"fsdp=2,cp=2", "zero1"},
                                    {"fsdp=2,cp=2", "zero3"},
                                    {"cp=2,fsdp=3", "zero3"},
                                    {"dp=2,fsdp=2,cp=2", "zero3"},
                                    {"fsdp=2,cp=2,tp=2", "zero3", "1f1b", true},
                                    {"pp=2,cp=2", "bucketed", "1f1b", false, 4},
                                    {"pp=2,cp=2", "zero3", "zb_v", false, 4},
                                    {"pp=3,cp=2", "bucketed", "gpipe", false, 3},
                                    {"pp=2,cp=2,tp=2", "bucketed", "1f1b", true, 2},
                                    {"pp=2,fsdp=2,cp=2,tp=2", "zero3", "1f1b", true, 2},
                                    {"pp=2,dp=2,cp=2", "zero1", "1f1b", false, 2}};
  std::size_t turn = 0;
  for (const Mesh& mesh : meshes)
    for (const bool tied : {false, true}) {
      Problem problem = long_problem();
      problem.layers = 4;
      problem.tied = tied;
      problem.kv_heads = tied ? 2 : 12;
      problem.accumulate = mesh.accumulate;
      auto options = all_contexts[turn++ % all_contexts.size()];
      const auto shape = parallel::MeshShape(mesh.text);
      const std::int64_t kv = std::max<std::int64_t>(1, problem.kv_heads / shape.size(Axis::tp));
      if (kv % shape.size(Axis::cp) != 0 && options.exchange == Exchange::ulysses)
        options.exchange = Exchange::ring;
      check(
          problem,
          {mesh.text, mesh.inner, mesh.sequence_parallel, mesh.schedule, 1, 0, "threads", options},
          1e-12);
    }
}

TEST_CASE("context parallel with recomputation, and over tcp and shm") {
  Problem problem = long_problem();
  problem.recompute = {1};
  for (const auto& options : all_contexts)
    check(problem, {"cp=2,fsdp=2", "zero3", false, "1f1b", 1, 0, "threads", options}, 1e-12);
  problem.recompute = {};
  problem.steps = 2;
  for (const char* transport : {"tcp", "shm"})
    for (const auto& options : all_contexts)
      check(problem, {"cp=3", "bucketed", false, "1f1b", 1, 0, transport, options}, 1e-12);
}

// One process on the same sequences: the ledger's peak falls as 1/c but for what does not depend on
// tokens (the head's matrix and its gradient). Gathered keys and values stay whole.
TEST_CASE("activations fall as 1/c, and are those of the check") {
  Problem problem = long_problem();
  problem.dtype = DType::fp32;
  problem.steps = 2;
  problem.layers = 8;
  problem.sequence = 192;
  const Config config = problem.config();
  const auto peak_on = [&](const std::string& mesh,
                           const context_parallel::ContextOptions& options) {
    const MeshCase each{mesh, "flat", false, "1f1b", 1, 0, "threads", options};
    std::vector<double> peaks(static_cast<std::size_t>(each.plan().shape.ranks()));
    on_mesh(each, config, [&](auto given, auto& world) {
      Model model(config, problem.dtype, autograd::Device::cpu, given->part(),
                  given->model_ranks());
      const auto strategy = std::move(given);
      Trainer trainer(model, mesh_corpus(), *strategy, problem.options());
      trainer.step();
      autograd::reset_peak_memory();
      trainer.step();
      peaks[static_cast<std::size_t>(world.rank())] =
          static_cast<double>(autograd::memory_use(autograd::MemoryKind::activations).peak);
    });
    return *std::max_element(peaks.begin(), peaks.end());
  };
  const double alone = peak_on("cp=1", {});
  for (const int c : {2, 4})
    for (const auto& options : all_contexts) {
      if (!mesh_cases.takes()) continue;
      CAPTURE(c);
      CAPTURE(name_of(options.exchange));
      CAPTURE(name_of(options.order));
      const std::string mesh = fmt::format("cp={}", c);
      const double peak = peak_on(mesh, options);
      const MeshCase each{mesh, "flat", false, "1f1b", 1, 0, "threads", options};
      const double predicted = need_of(each, config, problem.dtype, problem.options()).activations;
      CHECK(peak > 0.95 * predicted);
      CHECK(peak < 1.05 * predicted);
      if (options.exchange != Exchange::all_gather)
        CHECK(peak < 1.05 * alone / c);
      else
        CHECK(peak < 1.6 * alone / c);
    }
}

TEST_CASE("context parallel that cannot be is refused with a sentence") {
  const Problem problem = long_problem();
  const auto refusal = [&](const MeshCase& mesh) -> std::string {
    try {
      training::require_divisible(mesh.plan(), problem.config(), problem.options(), mesh.inner);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(contains(refusal({"cp=5"}), "sequences of 24 tokens do not divide into 10 equal pieces"));
  CHECK(contains(refusal({"cp=2", "single"}),
                 "--parallel single trains one copy of the model, but --mesh cp=2 has 2"));
  CHECK(contains(refusal({"cp=4,tp=6",
                          "flat",
                          false,
                          "1f1b",
                          1,
                          0,
                          "threads",
                          {Exchange::ulysses, TokenOrder::zigzag}}),
                 "--context ulysses divides the heads of a rank, 2 query and 2 key heads"));
  CHECK(refusal({"cp=4", "flat"}) == "");
}
