// Ranks that are processes, over cuda_ipc and NCCL, against plain sums.
#include <algorithm>
#include <string>

#include <doctest/doctest.h>

#include "collectives/backends/nccl.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/collectives/cuda/skipped.hpp"
#include "tests/sample.hpp"

using namespace ringside;
using namespace ringside::collectives;
using namespace ringside::tests;

TEST_CASE("processes over cuda_ipc get the plain sums") {
  if (skipped()) return;
  // On a GPU the largest consists of several pieces; the stand-in would take minutes for it.
  const bool is_gpu = cuda::choose_device(0).name != "stand-in for a GPU";
  const std::string sizes = is_gpu ? "4B,1000000B,100MB" : "4B,1000000B";
  testing::Sample sample;
  for (const std::string collective : {"all_reduce", "reduce_scatter", "all_gather", "broadcast"})
    for (const std::string type : {"fp32", "fp16", "bf16"}) {
      if (!sample.takes()) continue;
      CAPTURE(collective);
      CAPTURE(type);
      const auto outcome = testing::run_program(
          {testing::ringside_binary, "bench", collective, "-n", "2,3", "--type", type, "--bytes",
           sizes, "--backends", "cuda_ipc", "--repeat", "4", "--warmup", "1"},
          {}, Seconds(100));
      CHECK(outcome.err == "");
      CHECK(outcome.exit_code == 0);  // not 0 if an element is wrong
    }
}

TEST_CASE("calls that queue up on a GPU are measured, and their results are right") {
  if (skipped()) return;
  const auto outcome = testing::run_program(
      {testing::ringside_binary, "bench", "all_reduce", "-n", "2", "--bytes", "4KB,1MB",
       "--backends", "cuda_kernels,cuda_ipc", "--queued", "5", "--repeat", "4"},
      {}, Seconds(100));
  CAPTURE(outcome.out);
  CHECK(outcome.err == "");
  CHECK(outcome.exit_code == 0);
  CHECK(testing::contains(outcome.out, "; on GPUs 5 calls queue up"));
}

TEST_CASE("nccl gives the plain sums, with one rank for each GPU") {
  if (skipped()) return;
  const std::string ranks = std::to_string(std::min(8, cuda::device_count()));
  if (!nccl_is_here()) {
    std::printf("SKIPPED: this build has no NCCL\n");
    return;
  }
  for (const std::string collective : {"all_reduce", "all_gather", "broadcast"}) {
    const auto outcome =
        testing::run_program({testing::ringside_binary, "bench", collective, "-n", ranks, "--bytes",
                              "4096B,8MiB", "--backends", "nccl"},
                             {}, Seconds(100));
    CHECK(outcome.err == "");
    CHECK(outcome.exit_code == 0);
  }
}

TEST_CASE("nccl reports two ranks that share a GPU") {
  if (skipped()) return;
  if (!nccl_is_here() || cuda::device_count() > 1) {
    std::printf("SKIPPED: this needs NCCL and exactly one GPU\n");
    return;
  }
  const auto outcome = testing::run_program({testing::ringside_binary, "bench", "all_reduce", "-n",
                                             "2", "--bytes", "4KB", "--backends", "nccl"},
                                            {}, Seconds(60));
  CHECK(outcome.exit_code != 0);
  CHECK(testing::contains(outcome.err, "ranks 0 and 1 share GPU "));
  CHECK(testing::contains(outcome.err, nccl_version()));
  CHECK(testing::contains(outcome.err, "NCCL_MULTI_RANK_GPU_ENABLE=1"));
}
