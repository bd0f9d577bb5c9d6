// tools/gpu-check: its message without a GPU and, with scripts that stand in for nvidia-smi and
// ringside, its table, its JSON file and its exit code.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include "cli/report/json_file.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/text.hpp"

using namespace ringside::testing;
using ringside::cli::Json;

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
    write_program(folder / "path" / "compute-sanitizer",
                  "while [ \"$1\" != \"$FAKE_RINGSIDE\" ]; do shift; done; exec \"$@\"");
    write_program(
        folder / "build" / "bin" / "ringside",
        "[ \"$1 $2\" != \"$FAILING\" ] || { echo 'ringside: it broke on purpose' >&2; exit 1; }\n"
        "while [ $# -gt 0 ]; do [ \"$1\" != --json ] || echo '[{\"ratio\": 1}]' >\"$2\"; shift; "
        "done\necho done");
    write_program(folder / "build" / "tests" / "autograd" / "device" / "test_device_cuda",
                  "echo 'SKIPPED: it needs two GPUs'");
  }
  ~FakeMachine() { fs::remove_all(folder); }

  Outcome check(const std::string& failing) const {
    const std::string path = fmt::format("{}:{}", (folder / "path").string(), std::getenv("PATH"));
    return run_program({RINGSIDE_GPU_CHECK, "--binaries", (folder / "build").string(), "--out",
                        (folder / "out").string()},
                       {{"PATH", path},
                        {"FAILING", failing},
                        {"FAKE_RINGSIDE", (folder / "build" / "bin" / "ringside").string()}});
  }
  Json file() const {
    std::ifstream file(folder / "out" / "gpu-check.json");
    return Json::parse(file);
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
  const auto outcome = machine.check("");
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 0);
  const Json file = machine.file();
  CHECK(file.at("device") == "Fake GPU, 1.0");
  CHECK(file.at("gpus") == 1);
  CHECK(file.at("kernels_bf16").at(0).at("ratio") == 1);
  CHECK(file.contains("all_reduce"));
  CHECK(!file.contains("all_reduce_nccl"));
  std::string results;
  for (const Json& step : file.at("steps"))
    results += fmt::format("{}: {}\n", step.at("name").get<std::string>(),
                           step.at("result").get<std::string>());
  CHECK(results ==
        "tests test_device_cuda: ok\nmemcheck kernels: ok\nmemcheck train: ok\nall_reduce: "
        "ok\nall_reduce nccl: not run\nkernels bf16: ok\n"
        "kernels fp32: ok\ntraining: ok\n");
  CHECK(file.at("steps").at(0).at("note") == "1 skipped, see the log");
  CHECK(contains(
      outcome.out,
      "\nall_reduce nccl          not run         0  one GPU: NCCL needs one for each rank\n"));
}

TEST_CASE("gpu-check exits with 1 if a step fails and still runs the others") {
  const FakeMachine machine;
  const auto outcome = machine.check("bench all_reduce");
  CAPTURE(outcome.out);
  CHECK(outcome.exit_code == 1);
  CHECK(contains(outcome.out,
                 "gpu-check: all_reduce: FAILED (exit 1: ringside: it broke on purpose ["));
  CHECK(contains(outcome.out, "gpu-check: kernels fp32: ok\n"));
  CHECK(machine.file().at("steps").at(3).at("result") == "FAILED");
}
