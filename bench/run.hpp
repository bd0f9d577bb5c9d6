// One rank's part of `ringside bench`: it measures in turn with all other contenders.
#pragma once

#include <functional>
#include <vector>

#include "bench/bench_options.hpp"
#include "bench/process_layout.hpp"
#include "bench/report.hpp"

namespace ringside::cli {

// Returns when everything is measured. On rank 0 of the job, calls `take` with the rows of each
// size as soon as they are complete.
void run_bench(const BenchOptions& options, const ProcessLayout& layout,
               const std::function<void(const std::vector<BenchRow>&)>& take);

}  // namespace ringside::cli
