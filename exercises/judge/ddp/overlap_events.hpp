// The order of events in data parallelism that overlaps: how many calls had started when backward
// entered each layer of a LayeredNet, and who waited where. The trace of ProcessGroup and the
// observer of its calls tell it without the student's help.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "exercises/judge/ddp/data_parallel.hpp"

namespace ringside::exercises {

// The events of three steps.
Json events_of_steps(World& world, const Method& student);

struct ExpectedCalls {
  std::vector<std::string> labels;  // of one step, for the sentence; their order does not count
  // [layer]: how many of them before backward enters the layer.
  std::array<std::size_t, LayeredNet::depth> before = {};
};

// `run` holds what events_of_steps() returned on each rank.
Verdict judge_events(const Run& run, const ExpectedCalls& expected);

// Calls that the student made on a thread of its own: it has no trace, and no order with backward.
bool has_call_of_another_thread(World& world);
Verdict judge_threads(const Run& run);

// What a second backward without finish() does: it must throw, because the calls of the first one
// are under way.
Json ending_of_second_backward(World& world, const Method& student);
Verdict judge_second_backward(const Run& run);

// What finish() does in a step where rank 0 leaves out its backward, so that the calls of the
// others fail: it must throw. No call of world.group() works afterwards.
Json ending_of_failed_step(World& world, const Method& student);
Verdict judge_failed_step(const Run& run);

// The run with one member of what each rank returned.
Run part_of(const Run& run, const std::string& member);

}  // namespace ringside::exercises
