// Every rank of a training run must have the same options, also where an outer launcher starts each
// rank with a command line of its own. Ranks that differ in --lr would train on without an error,
// and drift apart.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "collectives/process_group.hpp"
#include "training/plan/plan.hpp"

namespace ringside::training {

// Name and value of each option, always in the same order. Names are those of `ringside train`.
using Options = std::vector<std::pair<std::string, std::string>>;

// Those of the table that must be the same on every rank: they change the numbers of a run, or
// which collectives a rank calls. The trainer compares the text itself. A test fails where an
// option of `train` is neither here nor known as a rank's own (tests/cli/faults/options_test.cpp).
Options shared_options(Plan plan);

// Every rank calls it. If any option differs, throws the same Error on all of them: each option
// that differs, with its values and their ranks.
void require_same_options(const Options& mine, collectives::ProcessGroup& group);

}  // namespace ringside::training
