#include <algorithm>
#include <latch>
#include <thread>
#include <vector>

#include "autograd/kernels/threads/parallel.hpp"
#include "base/error.hpp"
#include "base/system/start_thread.hpp"

namespace ringside::autograd {

namespace {
thread_local int threads_here = 1;

// OpenMP ends the process where it cannot start a thread.
void try_to_start(int n) {
  std::latch all_started(1);
  std::vector<std::thread> trial;
  const auto end_them = [&] {
    all_started.count_down();
    for (std::thread& thread : trial) thread.join();
  };
  try {
    for (int i = 0; i < n; ++i)
      trial.push_back(start_thread("the loops of this rank", [&] { all_started.wait(); }));
  } catch (...) {
    end_them();
    throw;
  }
  end_them();
}

}  // namespace

void set_threads(int n) {
  require(n >= 1, "set_threads: expected at least 1, got {}", n);
  if (n > threads_here) try_to_start(n - 1);
  threads_here = n;
}

int threads() {
  return threads_here;
}

int pieces_of(std::int64_t count, std::int64_t grain) {
  if (in_loop()) return 1;
  return static_cast<int>(
      std::clamp<std::int64_t>(count / std::max<std::int64_t>(grain, 1), 1, threads()));
}

}  // namespace ringside::autograd
