// What a reader of block.hpp should see once: kernels with one sync() left out, and
// ThreadSanitizer's answer.
//
//   missing_sync
//
// Runs each kernel that says sync() with three threads a block and two blocks at once: as it is,
// which must be no data race; and then once for each place in its text where it says sync(),
// without that one, which must be. Prints a line for each, and ends with 1 if any was not as it
// must be. Results are of no interest here: what is read too early may well be right, for years.
//
// Built with RINGSIDE_SANITIZE=thread only. There is no list of places: the block that forgets is
// told where sync() is called from.
#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <source_location>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include "autograd/kernels/shared/optimizer.hpp"
#include "autograd/kernels/shared/square_sums.hpp"
#include "tests/autograd/kernels/emulated/attention_problem.hpp"

namespace {

std::atomic<int> reports = 0;

}  // namespace

extern "C" {
// Reports are counted, not shown: each of them is expected, or told by name.
void __tsan_on_report(void*);
void __tsan_on_report(void*) {
  ++reports;
}
const char* __tsan_default_options();
const char* __tsan_default_options() {
  return "symbolize=0:exitcode=0:log_path=/dev/null";
}
}

namespace {

using namespace ringside::autograd;
using namespace ringside::tests;

using Place = std::string;  // file:line

std::mutex places_mutex;
std::set<Place> places;  // that have called sync() since it was emptied
Place forgotten;

// A block that forgets one of its sync()s.
class ForgetfulBlock : public EmulatedBlock {
 public:
  using EmulatedBlock::EmulatedBlock;
  void sync(const std::source_location& where = std::source_location::current()) {
    const std::string file = where.file_name();
    const Place here = file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line());
    if (thread() == 0) {
      const std::scoped_lock lock(places_mutex);
      places.insert(here);
    }
    if (here != forgotten) EmulatedBlock::sync();
  }
};

// Whether ThreadSanitizer finds something. In a process of its own, since it tells of each pair of
// places once.
template <class Run>
bool races_without(const Place& place, const Run& run) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    forgotten = place;
    run();
    _exit(reports > 0 ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status != 0;
}

// How many lines were not as they must be.
template <class Run>
int examine(const char* kernel, const Run& run) {
  places.clear();
  run();
  std::printf("%-26s as it is: %s\n", kernel, reports == 0 ? "no race" : "A RACE");
  int wrong = reports.exchange(0) != 0;
  const auto found = places;
  for (const Place& place : found) {
    const bool races = races_without(place, run);
    std::printf("%-26s without sync() of %s: %s\n", kernel, place.c_str(),
                races ? "found out" : "NOT FOUND OUT");
    wrong += !races;
  }
  if (found.empty()) std::printf("%-26s says no sync()\n", kernel), ++wrong;
  return wrong;
}

int examine_attention() {
  constexpr Emulation emulation{
      3, 2};  // three, so that no thread meets its own numbers again by chance
  AttentionProblem<float> problem({1, 2, 1, 66, 66, 8});
  int wrong = examine("attention forward", [&] { problem.forward<ForgetfulBlock>(emulation); });
  problem.take_delta<EmulatedBlock>(emulation);
  wrong += examine("attention keys", [&] { problem.keys_backward<ForgetfulBlock>(emulation); });
  return wrong +
         examine("attention queries", [&] { problem.queries_backward<ForgetfulBlock>(emulation); });
}

}  // namespace

int main() {
  int wrong = examine_attention();
  const auto many = numbers<float>(100, 1);
  double total = 0, parts[2] = {};
  wrong += examine("total", [&] {
    launch_emulated<ForgetfulBlock>(Total<float, double>{many.data(), 100, &total}, 1, {4, 1});
  });
  SquareSums<float> squares{};
  for (int i = 0; i < 2; ++i) {
    SquareSums<float>::Part part{};
    part.elements = 100, part.numbers = many.data();
    squares.slices.add(part);
  }
  squares.parts = parts;
  wrong += examine("sums of squares", [&] {
    launch_emulated<ForgetfulBlock>(squares, squares.blocks(), {4, 2});
  });
  std::printf("missing_sync: %s\n", wrong == 0
                                        ? "every sync() left out was found out, and nothing else"
                                        : "not as it must be, see above");
  return wrong == 0 ? 0 : 1;
}
