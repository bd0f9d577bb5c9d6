// Every rank of a training run must have the same options, also where an outer launcher starts each
// rank with a command line of its own. Ranks that differ in --lr would train on without an error,
// and drift apart.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/training/device_option.hpp"
#include "cli/training/training_plan.hpp"
#include "collectives/process_group.hpp"

namespace ringside::cli {

// Name and value of each option, always in the same order.
using Options = std::vector<std::pair<std::string, std::string>>;

// All options that must be the same on every rank: those that change the numbers of a run, and
// those that change which collectives a rank calls. Options of a rank's own (--threads, the path of
// --data) are not among them; the trainer compares the text itself. A test fails where an option of
// `train` is neither here nor known as a rank's own (tests/cli/faults/options_test.cpp).
Options shared_options(const TrainingPlan& plan, const DeviceOption& device);

// Every rank calls it. If any option differs, throws the same Error on all of them: each option
// that differs, with its values and their ranks.
void require_same_options(const Options& mine, collectives::ProcessGroup& group);

}  // namespace ringside::cli
