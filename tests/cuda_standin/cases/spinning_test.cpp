// Kernels of processes that spin on each other's flags and packets, with a GPU for each process:
// the sums, bit for bit, and the end of a rank that dies, gives up, comes late or makes another
// call.
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/cli/run_program.hpp"
#include "tests/sample.hpp"

using namespace ringside;
using namespace ringside::testing;

namespace {

Outcome run_worker(int ranks, const std::string& mode, const Variables& more = {}) {
  Variables environment = more;
  environment.insert({"RINGSIDE_STANDIN_DEVICES", "8"});  // unless `more` has another number
  return run_program(
      {ringside_binary, "launch", "-n", std::to_string(ranks), "--", IPC_WORKER, mode}, environment,
      Seconds(200));
}

// What the worker of all ranks prints; it must end well.
std::string worker_output(int ranks, const std::string& mode, const Variables& more = {}) {
  const Outcome outcome = run_worker(ranks, mode, more);
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 0);
  return outcome.out;
}

}  // namespace

TEST_CASE("processes with a GPU each get the plain sums, whatever the size and alignment") {
  Sample sample;
  for (const int ranks : {3, 2, 4, 8}) {
    if (!sample.takes()) continue;
    CAPTURE(ranks);
    const std::string out = worker_output(ranks, "check");
    CAPTURE(out);
    CHECK(!contains(out, "instead of"));
  }
}

TEST_CASE("a small all_reduce over cuda_ipc is one launch, without a query or an allocation") {
  const Outcome outcome = run_worker(3, "calls");
  CAPTURE(outcome.out);
  CHECK(outcome.exit_code == 0);
}

TEST_CASE("processes that share a GPU get the plain sums by copies") {
  const std::string out = worker_output(3, "copies", {{"RINGSIDE_STANDIN_DEVICES", "1"}});
  CAPTURE(out);
  CHECK(!contains(out, "instead of"));
}

TEST_CASE("calls over cuda_ipc queue up on the device, by kernels and by copies") {
  for (const char* devices : {"8", "1"})
    worker_output(3, "queued", {{"RINGSIDE_STANDIN_DEVICES", devices}});
}

TEST_CASE("calls over cuda_ipc can be captured and launched again and again, copies cannot") {
  worker_output(3, "captured");
  const Outcome copies = run_worker(2, "captured", {{"RINGSIDE_STANDIN_DEVICES", "1"}});
  CAPTURE(copies.out);
  CHECK(copies.exit_code != 0);
  CHECK(contains(copies.out,
                 "a CUDA graph cannot hold a call by copies, in which the hosts take "
                 "part: give each rank a GPU, or use ranks that are threads"));
}

TEST_CASE("kernels of several groups share the multiprocessors, and none waits for another's") {
  const std::string out = worker_output(3, "groups");
  CAPTURE(out);
  CHECK(contains(out, "group 0: cuda_ipc\n"));
  CHECK(contains(out,
                 "group 4: cuda_ipc by copies (the kernels of earlier groups have all "
                 "multiprocessors)"));
}

TEST_CASE("kernels are loaded before one spins, because loading waits for the GPU") {
  worker_output(2, "lazy", {{"RINGSIDE_STANDIN_LAZY", "1"}});
  // A user's own choice is kept, and its price is an error by the deadline.
  const Outcome chosen =
      run_worker(2, "lazy", {{"RINGSIDE_STANDIN_LAZY", "1"}, {"CUDA_MODULE_LOADING", "LAZY"}});
  CHECK(chosen.exit_code != 0);
}

TEST_CASE("an error in an argument leaves the GPU usable: only the arena is not freed") {
  for (const char* devices : {"8", "1"}) {
    const std::string out = worker_output(3, "argument", {{"RINGSIDE_STANDIN_DEVICES", devices}});
    CAPTURE(out);
    for (const int rank : {0, 1, 2}) CHECK(contains(out, fmt::format("rank {}: ", rank)));
    CHECK(contains(out, "expected memory of a GPU, got a buffer of the host"));
  }
}

TEST_CASE("MIG instances of one GPU are told apart, though they have one PCI bus id") {
  const Outcome outcome = run_worker(2, "calls", {{"RINGSIDE_STANDIN_MIG", "1"}});
  CAPTURE(outcome.out);
  CHECK(outcome.exit_code == 0);
}

TEST_CASE("a rank that dies while kernels spin on its flags is named by all others") {
  const Outcome outcome = run_worker(3, "die");
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(!outcome.timed_out);
  CHECK(outcome.seconds < 60);  // of a deadline of 100
  for (const int rank : {0, 2}) CHECK(contains(outcome.out, fmt::format("rank {}: ", rank)));
  CHECK(contains(outcome.out, "rank 1"));
  CHECK(!contains(outcome.out, "no error"));
}

TEST_CASE("a rank that is interrupted ends the kernels of all others, which say why") {
  const Outcome outcome = run_worker(3, "interrupt");
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(outcome.seconds < 60);
  for (const int rank : {0, 1, 2}) CHECK(contains(outcome.out, fmt::format("rank {}: ", rank)));
  CHECK(!contains(outcome.out, "no error"));
  const auto first = outcome.out.find("somebody pulled the plug");
  CHECK(first != std::string::npos);
  CHECK(outcome.out.find("somebody pulled the plug", first + 1) != std::string::npos);
}

TEST_CASE(
    "a kernel that does not end is stopped at the deadline, and all say who waited for whom") {
  const Outcome outcome = run_worker(3, "held");
  CAPTURE(outcome.out);
  CAPTURE(outcome.err);
  CHECK(contains(outcome.out, " waited 2 s for number "));
  CHECK(contains(outcome.out, " of rank 1\n"));
  CHECK(!contains(outcome.out, "no error"));
}

TEST_CASE("a rank that makes another call, or none, ends the kernels of the others") {
  const Outcome mismatch = run_worker(3, "mismatch");
  CAPTURE(mismatch.out);
  CHECK(contains(mismatch.out, "the ranks disagree"));
  CHECK(!contains(mismatch.out, "no error"));
  const Outcome late = run_worker(3, "late");
  CAPTURE(late.out);
  CAPTURE(late.err);
  CHECK(contains(late.out, "rank 1"));
  CHECK(!contains(late.out, "no error"));
}

TEST_CASE("GPUs that cannot access each other's memory are refused in one sentence") {
  const Outcome outcome = run_worker(2, "calls", {{"RINGSIDE_STANDIN_WITHOUT", "peers"}});
  CAPTURE(outcome.out);
  CHECK(outcome.exit_code != 0);
  CHECK(contains(outcome.out,
                 "(each GPU must have access to the other's memory: nvidia-smi topo -p2p r shows "
                 "it; otherwise use nccl)"));
}
