// The tracks of every rank in a report: phases, waits and calls over time.
//
// Zoomed in, the page also shows the ops within phases, and the steps within calls with an arrow
// from the sender to the receiver of each. They are too short to be seen in a whole step, so they
// come as data, which the page's script draws (report.js):
//
//     {"scale": 95.1,                                          ms
//      "ranks": [{"rank": 0,
//                 "ops": [["linear", "forward", 0.51, 0.73], ...],  name, colour, begin, end (ms)
//                 "steps": [[2, 3, 60.1, 60.2, 61.4, 0.4, 0], ...]}, ...]}
//                                 step, sender, sent, began, arrived (ms), MB, which call
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
