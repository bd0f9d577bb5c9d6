// Training on the emulated device: every parallel strategy is compared with one process on the CPU;
// and the commands with --device.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <sstream>

#include <doctest/doctest.h>

#include "base/read_file.hpp"
#include "cli/options/device_option.hpp"
#include "collectives/cuda/device.hpp"
#include "collectives/process_group.hpp"
#include "collectives/ranks/run_threads.hpp"
#include "tests/cli/commands/train/training.hpp"
#include "tests/sample.hpp"
#include "tests/transformer/small_model.hpp"
#include "training/strategies/parallel_strategies.hpp"
#include "training/trainer.hpp"

namespace ringside::cli {
namespace {

using autograd::Device;
using collectives::ProcessGroup;
using training::Trainer;
using transformer::Corpus;
using transformer::Model;

training::TrainerOptions four_steps() {
  training::TrainerOptions options;
  options.steps = 4;
  options.batch = 12;
  options.accumulate = 2;
  options.recompute = {1};
  options.sequence = 16;
  options.clip = 0.5;
  return options;
}

// The losses and norms of all steps on rank 0, and the gradients of the last step.
struct Outcome {
  std::vector<double> losses, norms;
  std::vector<float> gradients;
};

Outcome train(const std::string& strategy_name, int ranks, Device device) {
  Outcome outcome;
  std::mutex guard;
  const transformer::Bytes text = tests::small_text();
  const Corpus corpus(text);
  collectives::run_threads(ranks, [&](ProcessGroup& group) {
    join_device({}, device, group);
    Model model(tests::small_config(), autograd::DType::fp32, device);
    const auto strategy = training::make_strategy(strategy_name, group, 0.004);
    Trainer trainer(model, corpus, *strategy, four_steps());
    for (int i = 0; i < 4; ++i) {
      const auto report = trainer.step();
      if (group.rank() == 0)
        outcome.losses.push_back(report.loss), outcome.norms.push_back(report.gradient_norm);
    }
    strategy->visit_gradients(model, [&](const autograd::NamedTensor& gradient) {
      if (group.rank() != 0) return;
      const autograd::Tensor ranks_run_as = gradient.tensor.to(Device::cpu);
      outcome.gradients.insert(outcome.gradients.end(), ranks_run_as.values<float>().begin(),
                               ranks_run_as.values<float>().end());
    });
    strategy->visit_state(trainer.optimizer(), [](const autograd::NamedTensor&) {});
  });
  return outcome;
}

}  // namespace

TEST_CASE("device strategies: every parallel strategy follows one process on the CPU") {
  const Outcome alone = train("single", 1, Device::cpu);
  testing::Sample sample;
  for (const std::string& strategy : training::strategy_names())
    for (const int ranks : {1, 2, 3}) {
      if ((strategy == "single") != (ranks == 1) || !sample.takes()) continue;
      CAPTURE(strategy);
      CAPTURE(ranks);
      const Outcome seen = train(strategy, ranks, Device::emulated);
      for (std::size_t i = 0; i < 4; ++i) {
        CHECK(seen.losses[i] == doctest::Approx(alone.losses[i]).epsilon(1e-4));
        CHECK(seen.norms[i] == doctest::Approx(alone.norms[i]).epsilon(1e-3));
      }
      REQUIRE(seen.gradients.size() == alone.gradients.size());
      double squares = 0, apart = 0;
      for (std::size_t i = 0; i < alone.gradients.size(); ++i) {
        squares += std::pow(static_cast<double>(alone.gradients[i]), 2);
        apart += std::pow(
            static_cast<double>(seen.gradients[i]) - static_cast<double>(alone.gradients[i]), 2);
      }
      CHECK(std::sqrt(apart / squares) < 1e-3);
    }
}

TEST_CASE("device program: train on the emulated device follows the CPU and resumes from it") {
  using namespace testing;
  const Training here({"--steps", "3"}), there({"--steps", "3", "--device", "emulated"});
  const auto losses = [](const Training& training, const Command& more) {
    Command command = {"--metrics", training.path("metrics").string()};
    command.insert(command.end(), more.begin(), more.end());
    const testing::Outcome outcome = training.run(command);
    CHECK(outcome.err == "");
    CHECK(outcome.exit_code == 0);
    CHECK(contains(outcome.out, "device   emulated: the GPU's kernels, run on the CPU\n") ==
          contains(outcome.out, "emulated"));
    std::vector<double> all;
    std::istringstream rows(read_file(training.path("metrics")));
    for (std::string row; std::getline(rows, row);)
      if (const auto json = Json::parse(row); json.contains("loss")) all.push_back(json["loss"]);
    return all;
  };
  const auto expected = losses(here, {});
  for (const Command& more :
       {Command{}, Command{"-n", "2", "--parallel", "zero2"},
        Command{"-n", "2", "--backend", "threads", "--parallel", "bucketed"}}) {
    const auto seen = losses(there, more);
    REQUIRE(seen.size() == expected.size());
    for (std::size_t i = 0; i < seen.size(); ++i)
      CHECK(seen[i] == doctest::Approx(expected[i]).epsilon(1e-4));
  }
  const std::string folder = here.path("saved").string();
  CHECK(here.run({"--steps", "5", "--stop-at", "2", "--save", folder}).exit_code == 0);
  const testing::Outcome resumed =
      run_program({ringside_binary, "train", "--resume", folder, "--data",
                   here.path("text.txt").string(), "--device", "emulated"});
  CHECK(resumed.err == "");
  CHECK(contains(resumed.out, "resumed  after step 2"));
  const auto text = [&](const char* device) {
    return run_program({ringside_binary, "generate", "--init", folder, "--tokens", "20",
                        "--temperature", "0", "--device", device});
  };
  CHECK(text("emulated").exit_code == 0);
  CHECK(text("emulated").out == text("cpu").out);
}

TEST_CASE("device program: bench train reports the time of each op on the emulated device") {
  using namespace testing;
  const auto outcome =
      run_program({ringside_binary, "bench", "train", "--model", "tiny", "--batch", "1",
                   "--sequence", "16", "--steps", "1", "--device", "emulated", "--json", "-"});
  CHECK(outcome.exit_code == 0);
  const auto rows = Json::parse(outcome.out);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0]["device"] == "emulated");
  CHECK(rows[0]["step_ms"] > 0);
  CHECK(rows[0]["gemm_alone_ms"] > 0);
  CHECK(std::any_of(rows[0]["ops"].begin(), rows[0]["ops"].end(),
                    [](const auto& op) { return op["op"] == "causal_attention"; }));
  CHECK(contains(outcome.err, "batch 1 x 16, fp32, AdamW, 1 thread, on emulated\n"));
}

TEST_CASE("device program: bench ddp measures every strategy on the emulated device") {
  using namespace testing;
  const auto outcome = run_program(
      {ringside_binary, "bench", "ddp", "-n", "2", "--model", "tiny", "--batch", "1", "--sequence",
       "16", "--steps", "1", "--buckets", "1", "--device", "emulated", "--json", "-"},
      {}, Seconds(100));
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(contains(outcome.err, ", on emulated; medians of 1 steps\n"));
  const auto figures = Json::parse(outcome.out);
  const auto& rows = figures.contains("rows") ? figures["rows"] : figures;
  CHECK(rows.size() == 5);  // none, naive, flat, overlap, bucketed
  for (const auto& row : rows) {
    CHECK(row["device"] == "emulated");
    CHECK(row["step_ms"] > 0);
  }
}

TEST_CASE("device program: benches of ranks on a GPU need a process for each rank") {
  using namespace testing;
  for (const std::string bench : {"ddp", "zero", "mesh"}) {
    CAPTURE(bench);
    const auto refused = run_program(
        {ringside_binary, "bench", bench, "-n", "2", "--device", "cuda", "--backend", "threads"});
    CHECK(refused.exit_code == 2);
    CHECK(refused.err ==
          "ringside: --device cuda needs a process for each rank: leave out --backend threads\n"
          "Try: ringside bench --help\n");
  }
  const auto two = run_program(
      {ringside_binary, "bench", "zero", "-n", "2", "--device", "cuda", "--backend", "shm,tcp"});
  CHECK(two.exit_code == 2);
  CHECK(two.err ==
        "ringside: on --device cuda the gradients go over --device-backend: name one --backend\n"
        "Try: ringside bench --help\n");
}

TEST_CASE("device program: unsupported devices and dtypes are refused") {
  using namespace testing;
  const auto refused =
      run_program({ringside_binary, "train", "--device", "emulated", "--dtype", "fp64"});
  CHECK(refused.exit_code == 2);
  CHECK(contains(refused.err,
                 "ringside: --dtype fp64 needs --device cpu: emulated supports fp32 and bf16\n"));
  CHECK(run_program({ringside_binary, "train", "--device", "gpu"}).exit_code == 2);
  const auto missing = collectives::cuda::what_is_missing();
  if (!missing) return;  // there is a GPU
  for (const Command& command :
       {Command{"train", "--steps", "1"}, Command{"train", "-n", "2", "--steps", "1"}}) {
    Command all = {ringside_binary};
    all.insert(all.end(), command.begin(), command.end());
    all.insert(all.end(), {"--device", "cuda"});
    const auto outcome = run_program(all);
    CHECK(outcome.exit_code == 1);
    CHECK(outcome.out == "");
    CHECK(outcome.err == "ringside: --device cuda: " + *missing +
                             "; --device emulated runs the GPU's kernels on the CPU\n");
  }
}

TEST_CASE("device program: without the library of its kernels, emulated says how to build it") {
  using namespace testing;
  const TemporaryDirectory folder;
  const auto program = folder.path() / "bin/ringside";
  std::filesystem::create_directory(program.parent_path());
  std::filesystem::copy_file(ringside_binary, program);
  const auto outcome =
      run_program({program, "train", "-n", "2", "--device", "emulated", "--steps", "1"});
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.out == "");
  const std::string missing =
      "libringside_emulated.so: cannot open shared object file: No such file or directory; ";
  CHECK(outcome.err == "ringside: the emulated device cannot be opened: " + missing +
                           (folder.path() / "lib/").string() + missing +
                           "build it: cmake --build --preset " + folder.path().filename().string() +
                           " --target ringside_emulated\n");
}

}  // namespace ringside::cli
