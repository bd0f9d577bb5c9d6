// tools/gpu-check: its message without a GPU and, with scripts that stand in for nvidia-smi and
// ringside, its table, its JSON file and its exit code.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/read_file.hpp"
#include "cli/pictures/json_file.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/text.hpp"

using namespace ringside::testing;
using ringside::Json;

namespace {

namespace fs = std::filesystem;

void write_program(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
  fs::permissions(path, fs::perms::owner_all);
}

// A fake machine with one GPU, and fake binaries that only write the file of --json.
struct FakeMachine {
  FakeMachine() {
    write_program(folder / "path" / "nvidia-smi",
                  "case $1 in --list-gpus) echo 'GPU 0: Fake';; *) echo 'Fake \"GPU\", "
                  "1.0';; esac");
    // The script looks for no libraries on the real machine.
    write_program(folder / "path" / "ldconfig", "echo libcublas.so.13; echo libnccl.so.2");
    write_program(folder / "path" / "python3", "exit 1");
    write_program(folder / "path" / "compute-sanitizer",
                  "while [ \"$1\" != \"$FAKE_RINGSIDE\" ]; do shift; done; exec \"$@\"");
    write_program(
        folder / "build" / "bin" / "ringside",
        "[ \"$1 $2\" != \"$FAILING\" ] || { echo 'ringside: it broke on purpose' >&2; exit 1; }\n"
        "[ \"$1 $2\" != \"$HANGING\" ] || { echo 'it hangs'; sleep 100; }\n"
        "[ \"$1 $2\" != 'bench all_reduce' ] || cp -n \"$FAKE_OUT/gpu-check.json\" "
        "\"$FAKE_OUT.seen\"\n"
        "while [ $# -gt 0 ]; do [ \"$1\" != --json ] || echo '[{\"ratio\": 1}]' >\"$2\"; shift; "
        "done\necho done");
    write_program(folder / "build" / "tests" / "autograd" / "device" / "test_device_cuda",
                  "echo 'SKIPPED: it needs two GPUs'");
  }
  ~FakeMachine() { fs::remove_all(folder); }

  Outcome check(const std::vector<std::string>& options, const Variables& more = {}) const {
    const std::string path = fmt::format("{}:{}", (folder / "path").string(), std::getenv("PATH"));
    std::vector<std::string> command = {RINGSIDE_GPU_CHECK, "--binaries",
                                        (folder / "build").string(), "--out",
                                        (folder / "out").string()};
    command.insert(command.end(), options.begin(), options.end());
    Variables variables = {{"PATH", path},
                           {"FAILING", ""},
                           {"HANGING", ""},
                           {"FAKE_OUT", (folder / "out").string()},
                           {"FAKE_RINGSIDE", (folder / "build" / "bin" / "ringside").string()}};
    for (const auto& [name, value] : more) variables[name] = value;
    return run_program(command, variables, ringside::Seconds(60));
  }
  Json file(const std::string& name = "out/gpu-check.json") const {
    return Json::parse(read_file(folder / name));
  }
  // "all_reduce: ok", a line for each step.
  std::string results(const std::string& name = "out/gpu-check.json") const {
    std::string all;
    const Json written = file(name);
    for (const Json& step : written.at("steps"))
      all += fmt::format("{}: {}\n", step.at("name").get<std::string>(),
                         step.at("result").get<std::string>());
    return all;
  }

  fs::path folder = fs::temp_directory_path() / fmt::format("ringside-gpu-check-{}", ::getpid());
};

}  // namespace

TEST_CASE("gpu-check reports that it found no GPU and exits with 2") {
  if (fs::exists("/dev/nvidia0")) {
    MESSAGE("SKIPPED: this machine has a GPU");
    return;
  }
  const auto outcome = run_program({RINGSIDE_GPU_CHECK});
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.err ==
        "gpu-check: found no GPU on this machine: nvidia-smi lists none, and /dev has no "
        "nvidia0\n");
  CHECK(outcome.out == "");
}

TEST_CASE("gpu-check runs every step and writes one table and one JSON file") {
  const FakeMachine machine;
  const auto outcome = machine.check({});
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 0);
  const Json file = machine.file();
  CHECK(file.at("device") == "Fake GPU, 1.0");
  CHECK(file.at("gpus") == 1);
  CHECK(file.at("kernels_bf16").at(0).at("ratio") == 1);
  CHECK(file.contains("all_reduce"));
  CHECK(!file.contains("all_reduce_nccl"));
  CHECK(machine.results() ==
        "tests test_device_cuda: ok\nkernels bf16: ok\nkernels fp32: ok\nall_reduce: ok\n"
        "all_reduce packets: ok\ntraining step: ok\nstrategies: ok\n"
        "all_reduce gpus: not run\nall_reduce nccl: not run\n"
        "pytorch kernels: not run\npytorch training step: not run\nmemcheck kernels: ok\n"
        "racecheck kernels: ok\nsynccheck kernels: ok\nmemcheck train: ok\n");
  CHECK(file.at("steps").at(0).at("note") == "1 skipped, see the log");
  CHECK(contains(outcome.out,
                 "\nall_reduce nccl                not run         0  one GPU: NCCL needs one for "
                 "each rank\n"));
  // A command that is cut off leaves what was known before.
  CHECK(machine.results("out.seen") ==
        "tests test_device_cuda: ok\nkernels bf16: ok\nkernels fp32: ok\n");
  const auto archive =
      run_program({"tar", "-tzf", (machine.folder / "out" / "gpu-check.tar.gz").string()});
  CHECK(contains(archive.out, "gpu-check/gpu-check.json\n"));
  CHECK(contains(archive.out, "gpu-check/memcheck_train.log\n"));
}

TEST_CASE("gpu-check --only runs one step, and names the steps if there is none of that name") {
  const FakeMachine machine;
  CHECK(machine.check({"--only", "kernels fp32", "--only", "memcheck train"}).exit_code == 0);
  CHECK(machine.results() == "kernels fp32: ok\nmemcheck train: ok\n");
  const auto wrong = machine.check({"--only", "kernel"});
  CHECK(wrong.exit_code == 1);
  CHECK(contains(wrong.err, "there is no step 'kernel': the steps are 'tests test_device_cuda' "));
  CHECK(contains(machine.check({"--list"}).out, "\npeers    60  racecheck kernels\n"));
  CHECK(machine.check({"--only", "tests"}).exit_code == 0);
  CHECK(machine.results() == "tests test_device_cuda: ok\n");
  CHECK(contains(machine.check({"--seconds", "x"}).err, "--seconds needs a number, not x"));
}

TEST_CASE("gpu-check stops a step that hangs, and does not begin one without time") {
  const FakeMachine machine;
  const auto outcome = machine.check({"--seconds", "12"}, {{"HANGING", "bench kernels"}});
  CAPTURE(outcome.out);
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.seconds < 30);
  const Json steps = machine.file().at("steps");
  CHECK(steps.at(0).at("result") == "ok");
  CHECK(steps.at(1).at("result") == "FAILED");
  CHECK(contains(steps.at(1).at("note").get<std::string>(), " s: it hangs ["));
  CHECK(steps.at(2).at("result") == "not run");
  CHECK(steps.at(2).at("note") == "no time is left: run it with --only 'kernels fp32'");
}

// A device machine ends a command after 600 s; starting it and searching libraries takes time, too.
TEST_CASE("gpu-check's parts each fit into 570 s, every step at its limit") {
  const FakeMachine machine;
  for (const char* name : {"test_cuda", "test_model_device_cuda"})
    write_program(machine.folder / "build" / "tests" / name, "exit 0");
  std::map<std::string, int> seconds;
  std::istringstream list(machine.check({"--list"}).out);
  std::string part, name;
  for (int limit = 0; list >> part >> limit && std::getline(list, name);) seconds[part] += limit;
  CHECK(seconds.size() == 4);
  for (const auto& [each, sum] : seconds) {
    CAPTURE(each);
    CHECK(sum > 0);
    CHECK(sum < 570);
  }
}

TEST_CASE("gpu-check that is stopped leaves what it measured, and names the step that ran") {
  const FakeMachine machine;
  const auto outcome = run_program(
      {"timeout", "-s", "TERM", "4", RINGSIDE_GPU_CHECK, "--binaries",
       (machine.folder / "build").string(), "--out", (machine.folder / "out").string()},
      {{"PATH", fmt::format("{}:{}", (machine.folder / "path").string(), std::getenv("PATH"))},
       {"FAILING", ""},
       {"HANGING", "bench kernels"},
       {"FAKE_OUT", ""},
       {"FAKE_RINGSIDE", ""}},
      ringside::Seconds(60));
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 124);
  CHECK(machine.results() == "tests test_device_cuda: ok\nkernels bf16: FAILED\n");
  CHECK(machine.file().at("steps").at(1).at("note") == "gpu-check was stopped while this step ran");
  CHECK(outcome.survivors == "");
}

TEST_CASE("gpu-check says so if compute-sanitizer does not support the device") {
  const FakeMachine machine;
  write_program(machine.folder / "path" / "compute-sanitizer",
                "echo '========= Error: Device not supported. Please refer to the list'; exit 1");
  CHECK(machine.check({"--only", "racecheck kernels"}).exit_code == 0);
  CHECK(machine.file().at("steps").at(0).at("note") ==
        "compute-sanitizer does not support this device");
}

TEST_CASE("gpu-check --rehearse wants every step to say that there is no GPU") {
  if (fs::exists("/dev/nvidia0")) {
    MESSAGE("SKIPPED: this machine has a GPU");
    return;
  }
  const FakeMachine machine;
  write_program(machine.folder / "path" / "nvidia-smi", "exit 1");
  write_program(machine.folder / "build" / "bin" / "ringside",
                "[ \"$1 $2\" = 'bench ddp' ] || echo 'ringside: found no GPU'; exit 1");
  const auto outcome =
      machine.check({"--rehearse", "--only", "all_reduce", "--only", "strategies"});
  CHECK(outcome.exit_code == 1);
  CHECK(machine.results() == "all_reduce: no GPU\nstrategies: FAILED\n");
  CHECK(machine.check({"--rehearse", "--only", "all_reduce"}).exit_code == 2);
}

TEST_CASE("gpu-check exits with 1 if a step fails and still runs the others") {
  const FakeMachine machine;
  const auto outcome = machine.check({}, {{"FAILING", "bench all_reduce"}});
  CAPTURE(outcome.out);
  CHECK(outcome.exit_code == 1);
  CHECK(contains(outcome.out,
                 "gpu-check: all_reduce: FAILED (exit 1: ringside: it broke on purpose ["));
  CHECK(contains(outcome.out, "gpu-check: strategies: ok\n"));
  CHECK(machine.file().at("steps").at(3).at("result") == "FAILED");
}
