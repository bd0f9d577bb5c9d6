// Runs a test's body on N ranks, which are threads of the test's process, over each transport.
#pragma once

#include <array>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/ports/reserved_port.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/execution/backend.hpp"
#include "collectives/group_options.hpp"
#include "collectives/process_group.hpp"
#include "collectives/ranks/run_threads.hpp"
#include "collectives/work.hpp"

namespace ringside::tests {

using collectives::GroupOptions;
using collectives::ProcessGroup;
using collectives::RankInfo;

// A port that nobody else is given (base/ports/reserved_port.hpp). The last eight stay reserved.
inline std::uint16_t free_port() {
  static std::mutex mutex;
  static std::array<std::optional<ReservedPort>, 8> reserved;
  static std::size_t next = 0;
  const std::lock_guard lock(mutex);
  return static_cast<std::uint16_t>(reserved[next++ % reserved.size()].emplace().number());
}

inline RankInfo rank_info_of(int rank, int size, std::uint16_t port) {
  RankInfo rank_info;
  rank_info.rank = rank_info.local_rank = rank;
  rank_info.size = rank_info.local_size = size;
  rank_info.master_port = port;
  rank_info.job_key = "test";
  rank_info.connect_timeout = Seconds(20);
  return rank_info;
}

// Runs `body` on one thread per rank. Returns the text of each rank's exception, or "" without one.
inline std::vector<std::string> on_threads(int size, const std::function<void(int rank)>& body) {
  std::vector<std::string> outcome(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        outcome[rank] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  return outcome;
}

using Body = std::function<void(ProcessGroup&)>;

inline std::vector<std::string> run_over(const char* backend, int size, const Body& body,
                                         const GroupOptions& options) {
  const auto port = free_port();
  return on_threads(size, [&](int rank) {
    ProcessGroup group = ProcessGroup::over(backend, rank_info_of(rank, size, port), options);
    body(group);
  });
}

inline std::vector<std::string> run_tcp(int size, const Body& body,
                                        const GroupOptions& options = {}) {
  return run_over("tcp", size, body, options);
}

// Each thread maps the segments itself, as a process would.
inline std::vector<std::string> run_shm(int size, const Body& body,
                                        const GroupOptions& options = {}) {
  return run_over("shm", size, body, options);
}

// Runs `body` over every transport. The test fails if a rank throws.
inline void on_every_transport(int size, const Body& body, const GroupOptions& options = {}) {
  {
    INFO("over threads");
    CHECK_NOTHROW(collectives::run_threads(size, body, options));
  }
  {
    INFO("over shm");
    for (const auto& outcome : run_shm(size, body, options)) CHECK(outcome == "");
  }
  INFO("over tcp");
  for (const auto& outcome : run_tcp(size, body, options)) CHECK(outcome == "");
}

}  // namespace ringside::tests
