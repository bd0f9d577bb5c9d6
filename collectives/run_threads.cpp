#include "collectives/run_threads.hpp"

#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/start_thread.hpp"
#include "collectives/bootstrap/connect.hpp"
#include "collectives/execution/backend.hpp"
#include "collectives/selection/calibration.hpp"

namespace ringside::collectives {

void run_threads(int size, const std::function<void(ProcessGroup&)>& body,
                 const GroupOptions& options) {
  const auto world = make_threads_world(size);
  std::mutex mutex;
  std::exception_ptr first;
  AlgorithmSelection algorithms = options.algorithms;
  if (!algorithms.costs()) algorithms.set_costs(costs_here("threads", options.link));
  const auto run_rank = [&](int rank, const std::function<void(ProcessGroup&)>& rank_body) {
    std::optional<ProcessGroup> group;
    try {
      Connections connections = behind_link(connect_threads(world, rank), options.link);
      group.emplace(make_schedule_backend(std::move(connections), options.executor), algorithms);
      rank_body(*group);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      if (group) group->abort(fmt::format("rank {} gave up: {}", rank, error.what()));
    }
  };

  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  try {
    for (int rank = 1; rank < size; ++rank)
      threads.push_back(start_thread(fmt::format("rank {} of {}", rank, size),
                                     [&run_rank, &body, rank] { run_rank(rank, body); }));
    run_rank(0, body);
  } catch (const Error& error) {
    // The ranks that have started wait for one that never will: rank 0 fails for it.
    const std::string cause = error.what();
    run_rank(0, [&cause](ProcessGroup&) { fail("{}", cause); });
  }
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace ringside::collectives
