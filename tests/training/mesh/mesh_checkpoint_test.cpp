// Checkpoints do not depend on the mesh: any mesh loads and saves the same files, and a run that
// was saved on one mesh continues on another.
#include <fstream>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "tests/text.hpp"
#include "tests/training/mesh/mesh_run.hpp"
#include "tests/transformer/temporary_directory.hpp"
#include "training/state/background_save.hpp"
#include "training/state/training_state.hpp"

using namespace ringside;
using namespace ringside::testing;
using tests::contains;

namespace {

Problem brief(bool tied, std::int64_t steps) {
  Problem problem;
  problem.layers = 4;
  problem.kv_heads = 2;
  problem.tied = tied;
  problem.steps = steps;
  problem.optimizer = training::OptimizerKind::adamw;
  return problem;
}

// Takes part in a run that starts or resumes in `from`, takes the steps up to `until`, and saves;
// and saves a second time in `to`/later, in the background of another step if there is one.
void run(const Problem& problem, std::unique_ptr<ParallelStrategy> given,
         const std::filesystem::path& from, std::int64_t until, const std::filesystem::path& to) {
  autograd::set_threads(1);
  Model model(problem.config(), problem.dtype, autograd::Device::cpu, given->part(),
              given->model_ranks());
  const std::unique_ptr<ParallelStrategy> strategy = std::move(given);  // destroyed before it
  if (!from.empty()) transformer::load_parameters(from, model);
  Trainer trainer(model, mesh_corpus(), *strategy, problem.options());
  if (!from.empty()) training::load_state(training::read_run(from), model, trainer);
  trainer.run(until);
  training::save_run(to, model, trainer);
  const transformer::Vocabulary bytes;
  training::BackgroundSave saving;
  auto write = training::copy_run(to / "later", model, trainer, bytes);
  if (strategy->writes()) saving.start(std::move(write));
  if (until < problem.steps) trainer.step();
  saving.finish();
}

void run_alone(const Problem& problem, const std::filesystem::path& from, std::int64_t until,
               const std::filesystem::path& to) {
  run(problem, std::make_unique<training::SingleProcess>(), from, until, to);
}

void run_on_mesh(const Problem& problem, const MeshCase& mesh, const std::filesystem::path& from,
                 std::int64_t until, const std::filesystem::path& to) {
  on_mesh(mesh, problem.config(),
          [&](auto strategy, auto&) { run(problem, std::move(strategy), from, until, to); });
}

double difference_of_models(const Problem& problem, const std::filesystem::path& one,
                            const std::filesystem::path& other) {
  const Model a(problem.config(), problem.dtype), b(problem.config(), problem.dtype);
  transformer::load_parameters(one, a);
  transformer::load_parameters(other, b);
  double worst = 0;
  const auto of_a = a.named_parameters(), of_b = b.named_parameters();
  for (std::size_t i = 0; i < of_a.size(); ++i)
    worst = std::max(worst, difference(numbers_in(of_a[i].tensor), numbers_in(of_b[i].tensor)));
  return worst;
}

}  // namespace

TEST_CASE("a mesh that loads a checkpoint and saves it writes the same files") {
  for (const bool tied : {false, true}) {
    const TemporaryDirectory directory;
    const Problem problem = brief(tied, 9);
    const auto saved = directory.path() / "alone";
    run_alone(problem, {}, 3, saved);
    int number = 0;
    for (const MeshCase& mesh : std::vector<MeshCase>{{"dp=2", "zero1"},
                                                      {"tp=2", "single"},
                                                      {"tp=4", "bucketed"},
                                                      {"dp=2,tp=2", "zero1"},
                                                      {"tp=2,dp=2", "zero3"},
                                                      {"dp=3,tp=2", "zero2", true},
                                                      {"dp=2,fsdp=2", "zero1"},
                                                      {"cp=2", "bucketed"},
                                                      {"fsdp=2,cp=2", "zero3"},
                                                      {"cp=2,tp=2", "zero1"},
                                                      {"fsdp=2,dp=2", "zero3"},
                                                      {"dp=2,fsdp=2,tp=2", "zero3"},
                                                      {"pp=2", "single"},
                                                      {"pp=4", "bucketed"},
                                                      {"pp=2,tp=2", "naive"},
                                                      {"dp=2,pp=2", "zero1"},
                                                      {"pp=2,dp=2,tp=2", "zero1"},
                                                      {"tp=2,dp=2,pp=2", "zero3"}}) {
      if (!mesh_cases.takes()) continue;
      CAPTURE(mesh.mesh);
      CAPTURE(mesh.inner);
      CAPTURE(tied);
      const auto again = directory.path() / std::to_string(number++);
      run_on_mesh(problem, mesh, saved, 3, again);
      for (const char* file : {"model.safetensors", "training-3.safetensors", "config.json"}) {
        CAPTURE(file);
        CHECK(read_file(saved / file) == read_file(again / file));
        CHECK(read_file(saved / file) == read_file(again / "later" / file));
      }
    }
  }
}

// Rank 0, which writes, has the last stage and its copy of the matrix.
TEST_CASE("a pipeline whose first stage is on its last rank saves a tied matrix") {
  const TemporaryDirectory directory;
  const Problem problem = brief(true, 9);
  run_alone(problem, {}, 3, directory.path() / "alone");
  std::ofstream(directory.path() / "reversed.csv") << "1F0,1B0\n0F0,0B0\n";
  run_on_mesh(problem,
              {"pp=2", "single", false, "csv:" + (directory.path() / "reversed.csv").string()},
              directory.path() / "alone", 3, directory.path() / "again");
  for (const char* file : {"model.safetensors", "training-3.safetensors"}) {
    CAPTURE(file);
    CHECK(read_file(directory.path() / "alone" / file) ==
          read_file(directory.path() / "again" / file));
  }
}

TEST_CASE("a run that was saved on one mesh continues on another") {
  const TemporaryDirectory directory;
  // SGD: AdamW divides by the size of a gradient, and so amplifies rounding where that is near
  // zero.
  Problem problem = brief(true, 6);
  problem.optimizer = training::OptimizerKind::sgd;
  run_alone(problem, {}, 6, directory.path() / "alone");
  run_on_mesh(problem, {"dp=2,tp=2", "zero1", true}, {}, 3, directory.path() / "half");
  run_alone(problem, directory.path() / "half", 6, directory.path() / "resumed");
  run_on_mesh(problem, {"dp=3,tp=2", "zero3"}, directory.path() / "half", 6,
              directory.path() / "other");
  CHECK(difference_of_models(problem, directory.path() / "alone", directory.path() / "resumed") <
        1e-12);
  CHECK(difference_of_models(problem, directory.path() / "alone", directory.path() / "other") <
        1e-12);
}

TEST_CASE("a stage whose layers a checkpoint lacks refuses it, and no rank hangs") {
  const TemporaryDirectory directory;
  Problem shorter = brief(false, 1), longer = brief(false, 1);
  shorter.layers = 3;
  run_alone(shorter, {}, 1, directory.path());
  for (const char* const mesh : {"pp=2", "pp=2,tp=2", "pp=4"}) {
    CAPTURE(mesh);
    std::string text;
    try {
      run_on_mesh(longer, {mesh, "single"}, directory.path(), 1, directory.path() / "never");
    } catch (const Error& error) {
      text = error.what();
    }
    CHECK(contains(text, "model.layers.3."));
    CHECK(!std::filesystem::exists(directory.path() / "never"));
  }
}

TEST_CASE("ranks of a mesh that read different texts are all told") {
  const Problem problem = brief(false, 2);
  std::mutex guard;
  int told = 0;
  try {
    on_mesh({"tp=2"}, problem.config(), [&](auto strategy, auto& world) {
      const bool first = strategy->same_everywhere(7) && strategy->data_ranks() == 1;
      const bool same = !first || strategy->same_everywhere(world.rank());
      const std::lock_guard lock(guard);
      told += same ? 0 : 1;
    });
  } catch (const Error& error) {
    FAIL(error.what());
  }
  CHECK(told == 2);
}
