#include "collectives/ranks/run_threads.hpp"

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/system/start_thread.hpp"
#include "collectives/bootstrap/connect.hpp"

namespace ringside::collectives {

void run_on_threads(int size, const std::function<void(int rank)>& run) {
  enum { starting, started, cancelled };
  std::atomic<int> state = starting;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  const auto go_on = [&](int next) {
    state = next;
    state.notify_all();
  };
  const auto join = [&] {
    for (auto& thread : threads) thread.join();
  };
  try {
    for (int rank = 1; rank < size; ++rank)
      threads.push_back(start_thread(fmt::format("rank {} of {}", rank, size), [&, rank] {
        state.wait(starting);
        if (state == started) run(rank);
      }));
  } catch (const Error&) {
    go_on(cancelled);  // no rank begins: it would wait for one that never will
    join();
    throw;
  }
  go_on(started);
  run(0);
  join();
}

void run_threads(int size, const std::function<void(ProcessGroup&)>& body,
                 const GroupOptions& options) {
  const auto world = make_threads_world(size);
  std::mutex mutex;
  std::exception_ptr first;
  run_on_threads(size, [&](int rank) {
    std::optional<ProcessGroup> group;
    try {
      group.emplace(ProcessGroup::over(connect_threads(world, rank), options));
      body(*group);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      if (group) group->abort(fmt::format("rank {} gave up: {}", rank, error.what()));
    }
  });
  if (first) std::rethrow_exception(first);
}

}  // namespace ringside::collectives
