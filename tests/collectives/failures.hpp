// How tests of failures run a body on every rank, and what each rank then says.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/bootstrap/connect.hpp"
#include "tests/collectives/worlds.hpp"

namespace ringside::tests {

using namespace collectives;

inline GroupOptions patience(double seconds) {
  GroupOptions options;
  options.executor.timeout = Seconds(seconds);
  // In a ring every rank needs every other.
  options.algorithms = AlgorithmSelection("all_reduce=ring");
  return options;
}

// Runs `body` over threads. Returns the text of each rank's exception.
inline std::vector<std::string> outcomes_over_threads(int size, const Body& body,
                                                      const GroupOptions& options) {
  const auto world = make_threads_world(size);
  return on_threads(size, [&](int rank) {
    ProcessGroup group(make_schedule_backend(connect_threads(world, rank), options.executor));
    body(group);
  });
}

template <class Check>
void over_every_transport(int size, const Body& body, const GroupOptions& options, Check check) {
  {
    INFO("over threads");
    check(outcomes_over_threads(size, body, options));
  }
  {
    INFO("over shm");
    check(run_shm(size, body, options));
  }
  INFO("over tcp");
  check(run_tcp(size, body, options));
}

// A call of an all-reduce.
template <Element T>
Body all_reduce_of(std::size_t count, ReduceOp op = ReduceOp::sum, const char* algorithm = "ring") {
  return [=](ProcessGroup& group) {
    group.set_algorithms(AlgorithmSelection(std::string("all_reduce=") + algorithm));
    std::vector<T> x(count);
    group.all_reduce(std::span(x), op);
  };
}

}  // namespace ringside::tests
