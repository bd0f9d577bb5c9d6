// The checkpoints of `ringside train --save`, and what continues from them: --resume on the same
// and on other numbers of ranks, --init, and `ringside generate`.

#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "base/json.hpp"
#include "base/read_file.hpp"
#include "tests/cli/commands/train/training.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/collectives/worlds.hpp"
#include "training/state/training_state.hpp"
#include "transformer/checkpoint/checkpoint.hpp"

namespace ringside::cli {
namespace {

using namespace testing;

void check_resume(const Command& options) {
  const Training training({"--warmup", "4", "--lr", "0.01", "--validate-every", "4"});
  const auto run = [&](const char* folder, Command more) {
    more.insert(more.end(), options.begin(), options.end());
    more.insert(more.end(), {"--save", training.path(folder).string(), "--metrics",
                             training.path(folder).string() + ".metrics"});
    const Outcome outcome = training.run(more);
    CHECK(outcome.err == "");
    CHECK(outcome.exit_code == 0);
  };
  run("whole", {"--steps", "20"});
  run("halves", {"--steps", "20", "--stop-at", "10"});
  CHECK_FALSE(same_model(training.path("whole"), training.path("halves")));

  // Repeat only the text and the threads.
  Command second = {ringside_binary,    "train",
                    "--data",           training.path("text.txt").string(),
                    "--threads",        "1",
                    "--validate-every", "4",
                    "--resume",         training.path("halves").string(),
                    "--metrics",        training.path("halves.metrics").string()};
  second.insert(second.end(), options.begin(), options.end());
  const Outcome outcome = run_program(second, {}, Seconds(60));
  CHECK(outcome.err == "");
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "resumed  after step 10\n"));
  CHECK_FALSE(contains(outcome.out, "changed"));
  CHECK(contains(outcome.out, "\n10 steps in "));
  CHECK(same_model(training.path("whole"), training.path("halves")));

  auto rows = rows_without_times(training.path("halves.metrics"));
  std::erase_if(rows, [](const Json& row) {
    return row["step"] == 10 && row.contains("validation_bits_per_byte");
  });
  CHECK(rows == rows_without_times(training.path("whole.metrics")));  // including the losses
}

}  // namespace

TEST_CASE("training can start from a saved model") {
  const Training training({"--steps", "60", "--lr", "0.01", "--tied-head", "--kv-heads", "1"});
  REQUIRE(training.run({"-n", "2", "--save", training.path("model").string()}).exit_code == 0);
  const transformer::Config config = transformer::load_config(training.path("model"));
  CHECK(config.tied_head);
  CHECK(config.kv_heads == 1);
  CHECK(config.d_ff == 20);

  const Outcome again =
      run_program({ringside_binary, "train", "--data", training.path("text.txt").string(), "--init",
                   training.path("model").string(), "--steps", "1", "--lr", "0", "--threads", "1"});
  REQUIRE(again.exit_code == 0);
  const std::size_t at = again.out.find("step 1/1  loss ");
  REQUIRE(at != std::string::npos);
  CHECK(std::stod(again.out.substr(at + 15)) < 4);  // an untrained model has 5.5
}

TEST_CASE("a run that resumes in a new process gives the same bits on one rank") {
  for (const char* dtype : {"fp32", "fp64", "bf16"}) check_resume({"--dtype", dtype});
  check_resume({"--optimizer", "sgd"});
}

TEST_CASE("a run that resumes in a new process gives the same bits on three ranks") {
  check_resume({"-n", "3", "--dtype", "fp32"});
  check_resume({"-n", "3", "--dtype", "fp64", "--parallel", "bucketed"});
}

TEST_CASE("with RINGSIDE_ORDER=fixed every way to share gradients gives the same bits") {
  const Training training({"-n", "3", "--steps", "4"});
  const std::vector<testing::Command> ways = {{"--parallel", "flat"},
                                              {"--parallel", "bucketed", "--bucket-mb", "0.002"},
                                              {"--parallel", "zero1"},
                                              {"--parallel", "zero3"}};
  const auto models_alike = [&](const std::string& name, const testing::Variables& variables) {
    int alike = 0;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      testing::Command more = ways[i];
      more.insert(more.end(), {"--save", training.path(name + std::to_string(i)).string()});
      REQUIRE(training.run(more, variables).exit_code == 0);
      if (same_model(training.path(name + "0"), training.path(name + std::to_string(i)))) ++alike;
    }
    return alike;
  };
  CHECK(models_alike("fixed", {{"RINGSIDE_ORDER", "fixed"}}) == 4);
  CHECK(models_alike("free", {}) < 4);  // otherwise this test shows nothing
}

TEST_CASE("a killed run resumes from its last checkpoint on any number of ranks") {
  const Training training({"--steps", "400", "--dtype", "fp64", "--save-every", "5"});
  const std::string killed = training.path("killed").string();
  {
    testing::Program program(training.command({"-n", "2", "--save", killed}),
                             {{"RINGSIDE_LINK", "1Gbps,5ms"}});  // slow: it is far from its end
    REQUIRE(program.wait_for("step  40/400", Seconds(60)));
    for (const pid_t process : program.processes()) ::kill(process, SIGKILL);
    program.wait();
  }
  for (const char* ranks : {"1", "3", "4"}) {
    CAPTURE(ranks);
    const std::string copy = training.path(std::string("copy") + ranks).string();
    std::filesystem::copy(killed, copy, std::filesystem::copy_options::recursive);
    const Outcome outcome =
        run_program({ringside_binary, "train", "--data", training.path("text.txt").string(),
                     "--threads", "1", "--resume", copy, "-n", ranks, "--stop-at", "399"},
                    {}, Seconds(60));
    CHECK(outcome.err == "");
    CHECK(outcome.exit_code == 0);
    CHECK(contains(outcome.out, "resumed  after step "));
    CHECK(std::filesystem::exists(training.path(std::string("copy") + ranks) /
                                  "training-399.safetensors"));
  }
}

TEST_CASE("a run that is killed while it writes a checkpoint resumes from the one before") {
  const std::vector<Command> forms{{"-n", "2", "--backend", "tcp", "--parallel", "zero3"},
                                   {"-n", "2", "--backend", "shm", "--mesh", "tp=2"},
                                   {"-n", "3", "--backend", "tcp", "--parallel", "bucketed"}};
  for (const Command& form : forms) {
    CAPTURE(form[3] + " " + form[5]);
    Command options{"--steps", "400", "--d-model", "192"};
    options.insert(options.end(), form.begin(), form.end());
    const Training training(options);
    const std::filesystem::path killed = training.path("killed"), alone = training.path("alone");
    const auto is_written = [&] {
      std::error_code ignored;
      for (const auto& entry : std::filesystem::directory_iterator(killed, ignored))
        if (entry.path().extension() == ".part") return true;
      return false;
    };
    // Until a kill comes before the file has its name: then what was written is left.
    for (int attempt = 0; attempt < 50 && !is_written(); ++attempt) {
      std::filesystem::remove_all(killed);
      testing::Program program(training.command({"--save", killed.string(), "--save-every", "1"}));
      REQUIRE(eventually([&] { return std::filesystem::exists(killed / "model.safetensors"); }));
      const auto processes = program.processes();
      REQUIRE(eventually([&] { return is_written(); }));
      for (const pid_t process : processes) ::kill(process, SIGKILL);
      program.wait();
    }
    REQUIRE(is_written());
    // The checkpoint is that of a run which stopped at its step, to the byte.
    const auto step = training::read_run(killed).step;
    const std::string stop = std::to_string(step);
    REQUIRE(training.run({"--save", alone.string(), "--stop-at", stop}).exit_code == 0);
    for (const std::string& file :
         {std::string("model.safetensors"), "training-" + stop + ".safetensors"}) {
      CAPTURE(file);
      CHECK((read_file((killed / file).string()) == read_file((alone / file).string())));
    }
    const Outcome resumed = run_program(
        {ringside_binary, "train", "--data", training.path("text.txt").string(), "--threads", "1",
         "--resume", killed.string(), "--stop-at", std::to_string(step + 2)},
        {}, Seconds(60));
    CHECK(resumed.err == "");
    CHECK(contains(resumed.out, fmt::format("resumed  after step {}\n", step)));
  }
}

namespace {

// Whether the process has begun to join the others. It has read the checkpoint by then.
bool joins(pid_t process) {
  std::error_code ignored;
  for (const auto& open :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process), ignored))
    if (std::filesystem::read_symlink(open, ignored) == "anon_inode:[eventpoll]") return true;
  return false;
}

}  // namespace

// Ranks of other hosts, started again, may come before the old rank 0 has saved and ended.
TEST_CASE("ranks that wait for rank 0 resume from the checkpoint that is there when it comes") {
  const Training training({"--steps", "6"});
  const std::string folder = training.path("model").string();
  REQUIRE(training.run({"--save", folder, "--stop-at", "2"}).exit_code == 0);
  const Command resume{ringside_binary, "train", "--data",   training.path("text.txt").string(),
                       "--threads",     "1",     "--resume", folder};
  const int port = tests::free_port();
  Program rank_1(resume, rank_variables(1, 2, port));
  REQUIRE(eventually([&] { return joins(rank_1.pid()); }));
  Command to_step_4 = resume;
  to_step_4.insert(to_step_4.end(), {"--stop-at", "4"});
  REQUIRE(run_program(to_step_4).exit_code == 0);
  const Outcome rank_0 = run_program(resume, rank_variables(0, 2, port)), other = rank_1.wait();
  CHECK(rank_0.err == "");
  CHECK(contains(rank_0.out, "resumed  after step 4\n"));
  CHECK(rank_0.exit_code == 0);
  CHECK(other.err == "");
  CHECK(other.exit_code == 0);
}

TEST_CASE("a resumed run prints changed options and refuses some changes") {
  const Training training({"--steps", "4", "--stop-at", "2"});
  const std::string folder = training.path("model").string();
  REQUIRE(training.run({"--save", folder}).exit_code == 0);
  const auto resume = [&](const Command& more) {
    Command command = {ringside_binary, "train", "--data",   training.path("text.txt").string(),
                       "--threads",     "1",     "--resume", folder};
    command.insert(command.end(), more.begin(), more.end());
    return run_program(command, {}, Seconds(30));
  };
  CHECK(resume({"--model", "tiny"}).err ==
        "ringside: --resume brings the model's sizes with it: leave out --model and the "
        "sizes\nTry: ringside train --help\n");
  CHECK(resume({"--dtype", "fp64"}).err ==
        "ringside: the run in " + folder +
            " is in fp32: it cannot continue in fp64\nTry: ringside train --help\n");
  CHECK(resume({"--optimizer", "sgd"}).err == "ringside: the run in " + folder +
                                                  " has the state of another optimizer than sgd: "
                                                  "leave out --optimizer\nTry: ringside train "
                                                  "--help\n");
  CHECK(resume({"--init", folder}).err ==
        "ringside: --resume continues a run and --init starts one: choose one of them\nTry: "
        "ringside train --help\n");
  CHECK(resume({"--steps", "2"}).err ==
        "ringside: the run in " + folder + " has taken its 2 steps: ask for more with --steps\n");
  CHECK(resume({"--stop-at", "2"}).err ==
        "ringside: the run cannot stop after step 2: it has already taken 2 steps\n");
  std::ofstream(training.path("other.txt")) << std::string(5000, 'x');
  CHECK(resume({"--data", training.path("other.txt").string(), "-n", "2"}).err ==
        "ringside: the run in " + folder +
            " was trained on another text: give the same --data, or start from its parameters "
            "with --init\n");
  CHECK(contains(training.run({"--save-every", "2"}).err,
                 "ringside: --save-every needs a folder to save in: name one with --save"));

  const Outcome changed = resume(
      {"--seed", "7", "--batch", "6", "--steps", "8", "--save", training.path("next").string()});
  CHECK(changed.exit_code == 0);
  CHECK(contains(changed.out,
                 "changed  steps was 4 and is 8\nchanged  batch was 12 and is 6\nchanged  seed was "
                 "0 and is 7\nchanged  the learning rate was "));
}

TEST_CASE("generate continues a text with a checkpoint") {
  const Training training({"--steps", "40", "--lr", "0.01"});
  const std::string model = training.path("model").string();
  REQUIRE(training.run({"--save", model}).exit_code == 0);
  const auto generate = [&](const Command& more) {
    Command command = {ringside_binary, "generate", "--init", model};
    command.insert(command.end(), more.begin(), more.end());
    return run_program(command);
  };
  const Outcome text =
      generate({"--prompt", "line 4", "--tokens", "40", "--top-k", "5", "--seed", "3"});
  CHECK(text.err == "");
  CHECK(text.exit_code == 0);
  CHECK(text.out.starts_with("line 4"));
  CHECK(text.out.size() >= 47);
  std::ofstream(training.path("prompt")) << "line 4";
  const std::string file = training.path("prompt").string();
  CHECK(generate({"--prompt-file", file, "--tokens", "40", "--top-k", "5", "--seed", "3"}).out ==
        text.out);
  CHECK(generate({"--prompt", "line 4", "--tokens", "40", "--top-k", "5", "--seed", "4"}).out !=
        text.out);
  const std::string likeliest = generate({"--prompt", "line", "--temperature", "0"}).out;
  CHECK(generate({"--prompt", "line", "--top-k", "1", "--seed", "9"}).out == likeliest);
  CHECK(generate({"--prompt", "x", "--tokens", "0"}).out == "x\n");
  CHECK(generate({"--prompt", ""}).err == "ringside: a prompt needs at least one byte\n");
  CHECK(generate({"--prompt-file", model + "/no"}).err ==
        "ringside: cannot read the beginning of the text from " + model +
            "/no: No such file or directory\n");
  CHECK(generate({"--prompt", "a", "--prompt-file", file}).exit_code == 2);
  CHECK(generate({"--top-k", "-1"}).exit_code == 2);
}

TEST_CASE(
    "a sharded run saves what a single process saves and resumes with another strategy on other "
    "ranks") {
  const Training training({"--steps", "8", "--dtype", "fp64", "--bucket-mb", "0.001"});
  const auto at = [&](const std::string& name) { return training.path(name).string(); };
  REQUIRE(training.run({"--stop-at", "4", "--save", at("alone-4")}).exit_code == 0);
  REQUIRE(training.run({"--save", at("alone-8")}).exit_code == 0);
  const std::vector<std::string> strategies = {"zero1_broadcast", "zero1", "zero2", "zero3"};
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    const std::string strategy = strategies[i], next = strategies[(i + 1) % strategies.size()];
    CAPTURE(strategy);
    REQUIRE(
        training.run({"--stop-at", "4", "--save", at(strategy), "-n", "3", "--parallel", strategy})
            .exit_code == 0);
    for (const char* file : {"model.safetensors", "training-4.safetensors"})
      CHECK(largest_difference_of(training.path("alone-4") / file, training.path(strategy) / file) <
            1e-9);
    CHECK(read_file(training.path("alone-4") / "config.json") ==
          read_file(training.path(strategy) / "config.json"));
    const Outcome outcome =
        run_program({ringside_binary, "train", "--resume", at(strategy), "--data", at("text.txt"),
                     "--threads", "1", "-n", "2", "--parallel", next, "--bucket-mb", "0.001"},
                    {}, Seconds(60));
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    for (const char* file : {"model.safetensors", "training-8.safetensors"})
      CHECK(largest_difference_of(training.path("alone-8") / file, training.path(strategy) / file) <
            1e-9);
  }
}

TEST_CASE("a changed checkpoint is refused by the name of what was changed") {
  const Training training({"--steps", "4", "--stop-at", "2", "-n", "2"});
  const auto folder = training.path("saved");
  REQUIRE(training.run({"--parallel", "zero3", "--save", folder.string()}).exit_code == 0);
  // Replaces a text of a file by another one of the same length.
  const auto edit = [&](const char* file, const std::string& from, const std::string& to) {
    std::string bytes = read_file(folder / file);
    REQUIRE(contains(bytes, from));
    std::ofstream(folder / file, std::ios::binary)
        << bytes.replace(bytes.find(from), from.size(), to);
  };
  const auto flip_exponent_bit = [&] {  // of the last parameter
    std::string bytes = read_file(folder / "model.safetensors");
    bytes.back() = static_cast<char>(bytes.back() ^ 0x20);
    std::ofstream(folder / "model.safetensors", std::ios::binary) << bytes;
  };
  const auto run_with = [&](Command command, bool accept) {
    command.insert(command.begin(), ringside_binary);
    if (accept) command.emplace_back("--accept-changes");
    return run_program(command, {}, Seconds(60));
  };
  const Command resume{"train",
                       "--resume",
                       folder.string(),
                       "--data",
                       training.path("text.txt").string(),
                       "--stop-at",
                       "3",
                       "-n",
                       "2",
                       "--parallel",
                       "zero3",
                       "--save",
                       training.path("other").string()},
      generate{"generate", "--init", folder.string(), "--tokens", "3", "--temperature", "0"};
  const auto expect = [&](const Command& command, const std::string& change) {
    const Outcome outcome = run_with(command, false);
    CHECK(outcome.exit_code == 1);
    CHECK(outcome.err ==
          fmt::format("ringside: the checkpoint in {} was changed or damaged after it was saved "
                      "({}): restore it, or use it as it is with --accept-changes\n",
                      folder.string(), change));
    CHECK(outcome.survivors == "");
    const Outcome accepted = run_with(command, true);
    CHECK(accepted.err ==
          fmt::format("ringside: the checkpoint in {} was changed or damaged after it was saved "
                      "({}): used as it is\n",
                      folder.string(), change));
    CHECK(accepted.exit_code == 0);
    std::filesystem::remove_all(training.path("other"));
  };
  REQUIRE(run_with(generate, false).exit_code == 0);
  edit("config.json", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e-01");
  expect(resume, "config.json: \"rms_norm_eps\" is 0.1 and was 1e-05");
  expect(generate, "config.json: \"rms_norm_eps\" is 0.1 and was 1e-05");
  edit("config.json", "\"rms_norm_eps\": 1e-01", "\"rms_norm_eps\": 1e-05");
  edit("model.safetensors", "rms_norm_eps\\\":1e-05", "rms_norm_eps\\\":1e-01");
  expect(generate, "model.safetensors: metadata config");
  edit("model.safetensors", "rms_norm_eps\\\":1e-01", "rms_norm_eps\\\":1e-05");
  edit("training-2.safetensors", "\"step\":\"2\"", "\"step\":\"1\"");
  expect(resume, "training-2.safetensors: metadata step");
  edit("training-2.safetensors", "\"step\":\"1\"", "\"step\":\"2\"");
  flip_exponent_bit();
  expect(generate, "model.safetensors: lm_head.weight");
  expect(resume, "model.safetensors: lm_head.weight");
  flip_exponent_bit();
  // As an older version wrote it.
  for (const char* file : {"model.safetensors", "training-2.safetensors"})
    edit(file, "\"sha256\":", "\"sha000\":");
  CHECK(run_with(resume, false).exit_code == 0);
}

}  // namespace ringside::cli
