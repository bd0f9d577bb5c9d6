// Shows that every sync() in the kernels is needed, and that none is missing.
//
//     missing_sync
//
// Runs each kernel that calls sync() with three threads per block and two blocks at once, under
// ThreadSanitizer. The complete kernel must have no data race. Then each sync() in its source is
// left out in turn, and ThreadSanitizer must report a race. Prints a line for each run, and exits
// with 1 if any result was unexpected. The kernels' results are not compared: a value that is read
// too early is often right by luck.
//
// Only built with RINGSIDE_SANITIZE=thread. The program needs no list of the sync() calls: the
// block learns the location of each caller from std::source_location.
#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <source_location>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include "autograd/kernels/shared/cross_entropy.hpp"
#include "autograd/kernels/shared/optimizer.hpp"
#include "autograd/kernels/shared/rms_norm.hpp"
#include "autograd/kernels/shared/sums.hpp"
#include "tests/autograd/kernels/emulated/attention_problem.hpp"

namespace {

std::atomic<int> reports = 0;

}  // namespace

extern "C" {
// Counts the reports and hides their text: the program prints what each one means.
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

using Location = std::string;  // file:line

std::mutex locations_mutex;
std::set<Location> locations;  // of the sync() calls since the last clear()
Location omitted;

// A block that ignores the sync() at `omitted`.
class BlockWithoutSync : public EmulatedBlock {
 public:
  using EmulatedBlock::EmulatedBlock;
  void sync(const std::source_location& where = std::source_location::current()) {
    const std::string file = where.file_name();
    const Location here = file.substr(file.rfind('/') + 1) + ":" + std::to_string(where.line());
    if (thread() == 0) {
      const std::scoped_lock lock(locations_mutex);
      locations.insert(here);
    }
    if (here != omitted) EmulatedBlock::sync();
  }
};

// Whether ThreadSanitizer reports a race without this sync(). Runs in a child process, because
// ThreadSanitizer reports each pair of locations only once per process.
template <class Run>
bool races_without(const Location& location, const Run& run) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    omitted = location;
    run();
    _exit(reports > 0 ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status != 0;
}

// Runs a kernel complete and with each sync() left out. Returns the number of unexpected results.
template <class Run>
int examine(const char* kernel, const Run& run) {
  locations.clear();
  run();
  std::printf("%-26s complete: %s\n", kernel, reports == 0 ? "no race" : "A RACE");
  int wrong = reports.exchange(0) != 0;
  const auto found = locations;
  for (const Location& location : found) {
    const bool races = races_without(location, run);
    std::printf("%-26s without sync() of %s: %s\n", kernel, location.c_str(),
                races ? "race found" : "NO RACE FOUND");
    wrong += !races;
  }
  if (found.empty()) std::printf("%-26s calls no sync()\n", kernel), ++wrong;
  return wrong;
}

int examine_attention() {
  // Three threads, so that no thread happens to read only what it wrote itself.
  constexpr Emulation emulation{3, 2};
  AttentionProblem<float> problem({1, 2, 1, 66, 66, 8});
  int wrong = examine("attention forward", [&] { problem.forward<BlockWithoutSync>(emulation); });
  problem.compute_delta<EmulatedBlock>(emulation);
  wrong += examine("attention keys", [&] { problem.keys_backward<BlockWithoutSync>(emulation); });
  return wrong + examine("attention queries",
                         [&] { problem.queries_backward<BlockWithoutSync>(emulation); });
}

// The gradient has twice the elements in a pack, so that a thread reads what others have copied.
int examine_cross_entropy() {
  const auto logits = numbers<float>(4 * 40, 1);
  const std::int32_t targets[] = {1, 2, 3, 4};
  float losses[4] = {};
  std::vector<Bf16> gradient(logits.size());
  const CrossEntropy<float, Bf16> kernel{.logits = logits.data(),
                                         .targets = {targets, 40, -100},
                                         .losses = losses,
                                         .log_sums = nullptr,
                                         .gradient = gradient.data(),
                                         .rows = 4,
                                         .weight = 1,
                                         .packs = true,
                                         .row_in_shared = true};
  return examine("cross_entropy", [&] { launch_emulated<BlockWithoutSync>(kernel, 2, {3, 2}); });
}

int examine_rms_norm() {
  const auto x = numbers<float>(6 * 40, 1), w = numbers<float>(40, 2), r = numbers<float>(6, 3);
  std::vector<float> dx(x.size()), partials(2 * w.size()), dw(w.size());
  const RmsNormBackward<float, 32> kernel{.dy = x.data(),
                                          .x = x.data(),
                                          .w = w.data(),
                                          .r = r.data(),
                                          .dx = dx.data(),
                                          .partials = partials.data(),
                                          .rows = 6,
                                          .n = 40,
                                          .first = 0,
                                          .packs = true};
  const ColumnSums<float> sums{.partials = x.data(), .total = dw.data(), .lines = 6, .n = 40};
  return examine("rms_norm backward",
                 [&] {
                   launch_emulated<BlockWithoutSync>(kernel, 2, {3, 2});
                 }) +
         examine("column sums", [&] {
           launch_emulated<BlockWithoutSync>(sums, 1, {96, 1});
         });
}

}  // namespace

int main() {
  int wrong = examine_attention() + examine_cross_entropy() + examine_rms_norm();
  const auto many = numbers<float>(100, 1);
  double total = 0, partials[2] = {};
  wrong += examine("total", [&] {
    launch_emulated<BlockWithoutSync>(Total<float, double>{many.data(), 100, &total}, 1, {4, 1});
  });
  SquareSums<float> squares{};
  for (int i = 0; i < 2; ++i) {
    SquareSums<float>::Entry entry{};
    entry.elements = 100, entry.values = many.data();
    squares.table.add(entry);
  }
  squares.partials = partials;
  wrong += examine("sums of squares", [&] {
    launch_emulated<BlockWithoutSync>(squares, squares.blocks(), {4, 2});
  });
  std::printf("missing_sync: %s\n", wrong == 0 ? "a race for each omitted sync(), and no other"
                                               : "unexpected results, see above");
  return wrong == 0 ? 0 : 1;
}
