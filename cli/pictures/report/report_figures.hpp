// The charts of a run's report: memory over a step, and the loss. The tracks of the ranks are in
// tracks_figure.hpp.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/trace/rank_trace.hpp"
#include "cli/pictures/report/report.hpp"

namespace ringside::cli {

// The memory of one rank over the window, stacked by kind.
Figure memory_figure(const RankTrace& trace, const Window& window);

// The loss over the steps, from (step, bits per byte).
Figure loss_figure(const std::vector<std::pair<std::int64_t, double>>& bits_per_byte);

}  // namespace ringside::cli
