// A rank's part of `ringside bench`: measures what the plan asks for, in turn with all other lanes.
#pragma once

#include <functional>
#include <vector>

#include "cli/bench/plan.hpp"
#include "cli/bench/process_layout.hpp"
#include "cli/bench/report.hpp"

namespace ringside::cli {

// Returns when all is measured. On rank 0 of set 0 calls `take` with the rows of each size as soon
// as they are known.
void run_bench(const BenchPlan& plan, const BenchSeat& seat,
               const std::function<void(const std::vector<BenchRow>&)>& take);

}  // namespace ringside::cli
