// The pretty-printers and the command `ring` (tools/gdb), by gdb in batch mode. gdb loads them by
// itself, from the script that CMake writes beside the program.

#include <doctest/doctest.h>

#include <unistd.h>

#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/ports/reserved_port.hpp"
#include "base/read_file.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/text.hpp"

namespace ringside {
namespace {

using testing::contains;
using testing::run_program;

bool can_debug() {
  static const bool can = [] {
    const auto outcome =
        run_program({"sh", "-c", "gdb -nx -q -batch -ex run --args true"}, {}, Seconds(60));
    return outcome.exit_code == 0 && contains(outcome.out, "exited normally");
  }();
  if (!can)
    MESSAGE(
        "SKIPPED: gdb is missing, or may not trace a process here (apt-get install gdb; in a "
        "container --cap-add=SYS_PTRACE)");
  return can;
}

// Runs `debuggee MODE` under gdb with these commands; returns what gdb prints. `started_by` is a
// program that gets the command line of gdb.
std::string gdb(
    const std::string& mode, const std::vector<std::string>& commands,
    const std::vector<std::string>& before = {"add-auto-load-safe-path " RINGSIDE_SOURCE_DIR},
    const std::vector<std::string>& started_by = {}, testing::Variables variables = {}) {
  std::vector<std::string> line = started_by;
  line.insert(line.end(), {"gdb", "-nx", "-q", "-batch"});
  for (const std::string& command : before) line.insert(line.end(), {"-iex", command});
  for (const char* command : {"set width 0", "set style enabled off", "set breakpoint pending off"})
    line.insert(line.end(), {"-ex", command});
  for (const std::string& command : commands) line.insert(line.end(), {"-ex", command});
  line.insert(line.end(), {"--args", RINGSIDE_DEBUGGEE, mode});
  variables["ASAN_OPTIONS"] = "detect_leaks=0";
  const auto outcome = run_program(line, variables, Seconds(100));
  INFO(outcome.err);
  CHECK_FALSE(contains(outcome.err, "Traceback"));
  CHECK_FALSE(contains(outcome.err, "Error occurred in Python"));
  return outcome.out + outcome.err;
}

// "break look_at<TYPE>", and for each of `stops` "continue" and "print value".
std::vector<std::string> looks_at(const std::vector<std::string>& types, int stops) {
  std::vector<std::string> commands;
  for (const std::string& type : types)
    commands.push_back(fmt::format("break look_at<ringside::{}>", type));
  commands.push_back("run");
  for (int i = 0; i < stops; ++i) {
    commands.push_back("print value");
    commands.push_back("continue");
  }
  return commands;
}

}  // namespace

TEST_CASE("ring draws the states of all ranks in step, and the step of each") {
  if (!can_debug()) return;
  const std::string out = gdb("step", {"break run_step", "run", "ring", "continue 2", "ring"});
  CHECK(contains(out,
                 "step 0 (of 0 to 5), in run_step: what arrives is added\n"
                 "           chunk 0  chunk 1  chunk 2  chunk 3\n"
                 "  rank 0   0        0        0        0         ─3─▶ rank 1\n"
                 "  rank 1   1        1        1        1         ─0─▶ rank 2\n"));
  CHECK(contains(out,
                 "step 2 (of 0 to 5), in run_step: what arrives is added\n"
                 "           chunk 0  chunk 1  chunk 2  chunk 3\n"
                 "  rank 0   0        0+2+3    0+3      0         ─1─▶ rank 1\n"
                 "  rank 1   1        1        0+1+3    0+1       ─2─▶ rank 2\n"
                 "  rank 2   1+2      2        2        0+1+2     ─3─▶ rank 3\n"
                 "  rank 3   1+2+3    2+3      3        3         ─0─▶ rank 0\n"));
}

TEST_CASE("gdb prints schedules, steps and the states of a rank in words") {
  if (!can_debug()) return;
  const std::string out =
      gdb("step", {"break run_step if step == 2", "run", "print schedules[1]",
                   "print schedules[1].steps[step]", "print states[1]", "up", "ring"});
  CHECK(contains(out,
                 "$1 = 4 chunks, 6 steps = {[0] = sends chunk 0 to rank 2, receives chunk 3 "
                 "from rank 0 (add), [1] = "));
  CHECK(contains(out, "$2 = sends chunk 2 to rank 2, receives chunk 1 from rank 0 (add)\n"));
  CHECK(contains(out,
                 "$3 = holds 1 in chunk 0, 1 in chunk 1, 0+1+3 in chunk 2, 0+1 in chunk 3 = "
                 "{chunk 0 = 1, chunk 1 = 1, chunk 2 = 0+1+3, chunk 3 = 0+1, "
                 "heard_from = 0+1+3}\n"));
  CHECK(contains(out, "step 2 (of 0 to 5), in run_step"));  // from the caller's frame, too
}

TEST_CASE("gdb prints tensors with shape, dtype, device, strides and first values") {
  if (!can_debug()) return;
  const std::string out = gdb("values", looks_at({"autograd::Tensor"}, 6));
  CHECK(contains(out, "$1 = [2, 3] fp32 cpu, strides [3, 1]: {1.5, 2, 3, 4, 5, 6}\n"));
  CHECK(contains(out, "$2 = [3, 2] fp32 cpu, strides [1, 3]: {1.5, 4, 2, 5, 3, 6}\n"));
  CHECK(contains(out, "$3 = [2] bf16 cpu, strides [1], requires gradient: {-0.5, -0.5}\n"));
  CHECK(contains(out, "$4 = undefined\n"));
  CHECK(contains(out, "$5 = [4] fp32 cpu, strides [1]: its memory is dropped\n"));
  CHECK(contains(out, "$6 = [10] int32 emulated, strides [1]: {7, 7, 7, 7, 7, 7, 7, 7, ...}\n"));
}

TEST_CASE("gdb prints a call with the name of its algorithm, and chunks") {
  if (!can_debug()) return;
  const std::string out =
      gdb("values",
          looks_at({"collectives::Call", "collectives::ChunkRange", "collectives::Chunks"}, 5));
  CHECK(contains(out,
                 "$1 = all_reduce of 100 bf16 (sum, ring) for model.norm.weight = {collective "
                 "= all_reduce, algorithm = ring, type = bf16, reduce = sum, root = 0, count "
                 "= 100, peer = 0, label = model.norm.weight}\n"));
  CHECK(contains(out, "$2 = broadcast of 5 fp32 from rank 2 (chain) = {"));
  CHECK(contains(out, "$3 = chunks 4-7\n"));
  CHECK(contains(out, "$4 = chunks 6,7,0\n"));
  CHECK(contains(out, "$5 = 10 elements in 4 chunks: 3, 3, 2, 2\n"));
}

TEST_CASE("ring tells the call and the step of ranks that are threads") {
  if (!can_debug()) return;
  const std::string out =
      gdb("threads", {"break SimpleExecutor::apply", "run", "ring", "thread", "print task.call"});
  CAPTURE(out);
  // At the first breakpoint the rank that applies a message stands in its first step.
  CHECK(std::regex_search(
      out, std::regex(
               "  rank [0-2] \\(thread [1-3]\\): call #[0-9]+, all_reduce of 30 fp32 \\(sum, "
               "ring\\), step 0 \\(of 0 to 3\\).*: sends chunk [0-2] to rank [0-2], receives chunk "
               "[0-2] from rank [0-2] \\(add\\)\n")));
  CHECK(contains(out, "= all_reduce of 30 fp32 (sum, ring) = {collective = all_reduce"));
}

TEST_CASE("ring tells whom a rank waits for") {
  if (!can_debug()) return;
  const std::string out = gdb("threads", {"break Watchdog::note_completion", "run", "ring"});
  CAPTURE(out);
  CHECK(std::regex_search(
      out,
      std::regex(
          "step [0-3] \\(of 0 to 3\\), waits for (a message from|its message to be taken by) rank "
          "[0-2]: sends chunk")));
}

TEST_CASE("in a job of two processes a breakpoint in the executor stops first in the user's call") {
  if (!can_debug()) return;
  for (const char* backend : {"tcp", "shm"}) {
    CAPTURE(backend);
    const ReservedPort port;
    const std::string out =
        gdb("rank", {"break SimpleExecutor::run", "run", "backtrace 4", "print task.sequence"}, {},
            {"sh", "-c", "RANK=1 \"$0\" rank & RANK=0 \"$@\"; wait", RINGSIDE_DEBUGGEE},
            {{"WORLD_SIZE", "2"},
             {"MASTER_PORT", std::to_string(port.number())},
             {"RINGSIDE_BACKEND", backend},
             {"RINGSIDE_EXECUTOR", "simple"}});
    CAPTURE(out);
    CHECK(std::regex_search(out, std::regex("\n#0 [^\n]*SimpleExecutor::run[^\n]*\n#1 [^\n]*"
                                            "ScheduleBackend::run[^\n]*\n#2 [^\n]*CallQueue::run"
                                            "[^\n]*\n#3 [^\n]*ProcessGroup::all_reduce")));
    CHECK(contains(out, "$1 = 1\n"));
  }
}

TEST_CASE("an all-reduce over tcp is nine frames from the call to sendmsg, as debugging.md shows") {
  if (!can_debug()) return;
  const std::string out =
      gdb("tcp", {"tbreak SimpleExecutor::run", "run", "break sendmsg", "continue", "backtrace 9"});
  std::istringstream page(read_file(RINGSIDE_SOURCE_DIR "/docs/debugging.md"));
  const std::regex frame("    #([0-9])  (?:ringside::collectives::)?([A-Za-z_:]+) \\(.*");
  std::smatch found;
  int frames = 0;
  for (std::string line; std::getline(page, line);) {
    if (!std::regex_match(line, found, frame)) continue;
    CAPTURE(line);
    CHECK(found[1] == std::to_string(frames++));
    CHECK(std::regex_search(
        out, std::regex(fmt::format("\n#{} [^\n]*{}[^\n]* \\(", found[1].str(), found[2].str()))));
  }
  CHECK(frames == 9);
  CAPTURE(out);
  CHECK(std::regex_search(out, std::regex("\n#8 [^\n]*ProcessGroup::all_reduce")));
}

TEST_CASE("gdb prints the buckets of DDP, and its calls under way") {
  if (!can_debug()) return;
  const std::string bucket = gdb("ddp", looks_at({"ddp::Bucket"}, 1));
  CHECK(contains(bucket,
                 "$1 = 3 gradients, 125 elements, fp32, cpu = {[0...] = fc2.bias, [5...] = "
                 "fc2.weight, [105...] = fc1.bias}\n"));
  // One rank stops there, once. After the second line of its finish() every call is done.
  const std::string works =
      gdb("ddp", {"tbreak Bucketed::finish", "run", "set scheduler-locking off", "next", "next",
                  "print under_way_[0]"});
  CHECK(contains(works, " = done: all_reduce of 125 fp32 (avg, "));
  CHECK(contains(works, ") for bucket 0\n"));
}

TEST_CASE("gdb prints the shards of FSDP, and a unit before it is gathered") {
  if (!can_debug()) return;
  const std::string plan = gdb("fsdp", looks_at({"zero::ShardLayout"}, 1));
  CHECK(std::regex_search(
      plan, std::regex("= 2 buckets over 2 ranks, of rank [01] = \\{bucket 0 = 105 elements, "
                       "shards of 64, 23 of padding: fc2.bias, fc2.weight, bucket 1 = 220 "
                       "elements, shards of 112, 4 of padding: fc1.bias, fc1.weight\\}\n")));
  const std::string unit =
      gdb("fsdp", {"break Zero3::start_unshard", "run", "print flat.whole", "print flat.shard"});
  CHECK(contains(unit, "= [224] fp32 cpu, strides [1]: its memory is dropped\n"));
  CHECK(std::regex_search(unit, std::regex("= \\[112\\] fp32 cpu, strides \\[1\\]: \\{-?0\\.")));
}

TEST_CASE("without a rank in a collective, ring says where to stop") {
  if (!can_debug()) return;
  CHECK(contains(gdb("step", {"ring"}), "ring: the program does not run: type `run`, or attach"));
  CHECK(contains(gdb("step", {"break main", "run", "ring"}),
                 "ring: no rank is in a collective here: `backtrace` shows what it does"));
}

TEST_CASE("in a program without debug information, ring says which build has it") {
  if (!can_debug()) return;
  const auto outcome = run_program(
      {"sh", "-c",
       "objcopy --strip-debug \"$0\" stripped && gdb -nx -q -batch -ex 'source " RINGSIDE_SOURCE_DIR
       "/tools/gdb/load.py' -ex 'break main' -ex run -ex ring --args ./stripped step; "
       "rm -f stripped",
       RINGSIDE_DEBUGGEE},
      {{"ASAN_OPTIONS", "detect_leaks=0"}}, Seconds(100));
  CHECK(contains(outcome.out + outcome.err,
                 "ring: this program has no debug information: debug one of the preset debug"));
}

TEST_CASE("in a course, where only the student's code has debug information, ring says so") {
  if (!can_debug()) return;
  const auto outcome = run_program(
      {"sh", "-c",
       "folder=$(mktemp -d) && cd $folder && echo 'void student() {}' >student.cpp && "
       "echo 'void student(); int main() { student(); }' >main.cpp && c++ -g -c student.cpp && "
       "c++ -c main.cpp && c++ main.o student.o && gdb -nx -q -batch -ex "
       "'source " RINGSIDE_SOURCE_DIR
       "/tools/gdb/load.py' -ex 'break student' -ex run -ex ring ./a.out; rm -r $folder"},
      {}, Seconds(100));
  CHECK(contains(outcome.out + outcome.err,
                 "ring: only your code has debug information here, so ring cannot see what "
                 "Ringside's functions hold: `info threads` lists the ranks"));
}

TEST_CASE("gdb loads the printers only from a safe path, and load.py without one") {
  if (!can_debug()) return;
  CHECK(contains(gdb("step", {"info pretty-printer global ringside"}, {}), "declined"));
  CHECK(contains(gdb("step", {"help ring"},
                     {"set auto-load no", "source " RINGSIDE_SOURCE_DIR "/tools/gdb/load.py"}),
                 "Draw what every rank holds"));
}

}  // namespace ringside
