// How a group runs its calls: timeouts, algorithms, an emulated link.
#pragma once

#include <optional>

#include "collectives/execution/executor_options.hpp"
#include "collectives/selection/algorithm_selection.hpp"
#include "collectives/transport/link.hpp"

namespace ringside::collectives {

struct GroupOptions {
  ExecutorOptions executor;
  AlgorithmSelection algorithms;
  // Slows the group down to the speed of such a network (transport/emulated_link.hpp). Ranks select
  // algorithms by it, so it is the same on all.
  std::optional<Link> link = {};
};

// The defaults, changed by RINGSIDE_TIMEOUT (seconds), RINGSIDE_WARN_AFTER (seconds, 0: never),
// RINGSIDE_SLICE_BYTES, RINGSIDE_ALGORITHM ("all_reduce=two_shot,my.json,...", whose files
// load_algorithms() must have loaded), RINGSIDE_ORDER ("fixed") and RINGSIDE_LINK ("1Gbps,50us").
GroupOptions group_options_from_environment();

// Whether RINGSIDE_ORDER is "fixed" (docs/bits.md). Throws Error where it is anything else.
bool order_is_fixed();

}  // namespace ringside::collectives
