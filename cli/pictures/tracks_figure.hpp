// The tracks of every rank in a report: phases, waits and calls over time.
//
// Zoomed in, the page also shows the ops within phases, and the steps within calls with an arrow
// from the sender to the receiver of each.
#pragma once

#include <string>
#include <vector>

#include "base/trace/rank_trace.hpp"
#include "cli/pictures/report/report.hpp"

namespace ringside::cli {

// Totals of one rank's tracks, in seconds.
struct TrackTotals {
  double computing = 0;  // in phases, without their waits
  double network = 0;    // in calls
  double exposed = 0;    // waiting for calls; in a pipeline also between phases
  int calls = 0;
};
TrackTotals totals_of(const RankTrace& trace, const Window& window);

// Two tracks for each rank, with exposed communication hatched. The width of the figure stands for
// `scale` seconds (at least the window): figures with the same scale are comparable.
Figure tracks_figure(const std::string& title, const std::vector<RankTrace>& ranks,
                     const Window& window, double scale);

}  // namespace ringside::cli
