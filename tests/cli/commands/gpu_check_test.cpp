// tools/gpu-check: what it says without a GPU; and, with programs that only play their parts, its
// table, its file and how it ends.
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

// A machine with one GPU, and binaries that do nothing but write what --json asks for.
struct Stage {
  Stage() {
    write_program(folder / "path" / "nvidia-smi",
                  "case $1 in --list-gpus) echo 'GPU 0: Pretended';; *) echo 'Pretended \"GPU\", "
                  "1.0';; esac");
    write_program(folder / "path" / "compute-sanitizer",
                  "while [ \"$1\" != \"$PRETENDED\" ]; do shift; done; exec \"$@\"");
    write_program(
        folder / "build" / "bin" / "ringside",
        "[ \"$1 $2\" != \"$FAILING\" ] || { echo 'ringside: it did not work' >&2; exit 1; }\n"
        "while [ $# -gt 0 ]; do [ \"$1\" != --json ] || echo '[{\"ratio\": 1}]' >\"$2\"; shift; "
        "done\necho done");
    write_program(folder / "build" / "tests" / "autograd" / "device" / "test_device_cuda",
                  "echo 'SKIPPED: two GPUs are wanted'");
  }
  ~Stage() { fs::remove_all(folder); }

  Outcome check(const std::string& failing) const {
    const std::string path = fmt::format("{}:{}", (folder / "path").string(), std::getenv("PATH"));
    return run_program({RINGSIDE_GPU_CHECK, "--binaries", (folder / "build").string(), "--out",
                        (folder / "out").string()},
                       {{"PATH", path},
                        {"FAILING", failing},
                        {"PRETENDED", (folder / "build" / "bin" / "ringside").string()}});
  }
  Json file() const {
    std::ifstream file(folder / "out" / "gpu-check.json");
    return Json::parse(file);
  }

  fs::path folder = fs::temp_directory_path() / fmt::format("ringside-gpu-check-{}", ::getpid());
};

}  // namespace

TEST_CASE("gpu-check says that there is no GPU and ends with 2") {
  if (fs::exists("/dev/nvidia0")) {
    MESSAGE("SKIPPED: this machine has a GPU");
    return;
  }
  const auto outcome = run_program({RINGSIDE_GPU_CHECK});
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.err ==
        "gpu-check: there is no GPU on this machine: nvidia-smi lists none, and /dev has no "
        "nvidia0\n");
  CHECK(outcome.out == "");
}

TEST_CASE("gpu-check runs every step and writes one table and one file") {
  const Stage stage;
  const auto outcome = stage.check("");
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 0);
  const Json file = stage.file();
  CHECK(file.at("device") == "Pretended GPU, 1.0");
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
      "\nall_reduce nccl          not run         0  one GPU: NCCL wants one for each rank\n"));
}

TEST_CASE("gpu-check ends with 1 where a step fails and runs the others") {
  const Stage stage;
  const auto outcome = stage.check("bench all_reduce");
  CAPTURE(outcome.out);
  CHECK(outcome.exit_code == 1);
  CHECK(
      contains(outcome.out, "gpu-check: all_reduce: FAILED (exit 1: ringside: it did not work ["));
  CHECK(contains(outcome.out, "gpu-check: kernels fp32: ok\n"));
  CHECK(stage.file().at("steps").at(3).at("result") == "FAILED");
}
