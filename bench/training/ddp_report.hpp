// The figures of `ringside bench ddp` as a table, as JSON and as a report.
#pragma once

#include <string>
#include <vector>

#include "base/trace/rank_trace.hpp"
#include "bench/training/bucket_forecast.hpp"
#include "bench/training/step_bench.hpp"
#include "bench/training/step_options.hpp"
#include "cli/pictures/chart.hpp"
#include "cli/pictures/report/report.hpp"

namespace ringside::cli {

// Over one backend.
struct DdpFigures {
  BenchRun run;
  int steps = 0;              // measured ones
  double gradient_bytes = 0;  // of all parameters
  std::vector<StepRow> rows;  // the step without communication first, with predictions
  BucketForecast forecast;    // with the times of rank 0

  std::vector<StepRow> bucketed() const;  // the rows with a bucket size
};

// Predicted and measured exposed communication by the size of a bucket.
Chart bucket_chart(const DdpFigures& figures);
Figure bucket_figure(const DdpFigures& figures);

CommandResult result_of(const DdpFigures& figures);

// The page. `traces` has phases "step N of CONTENDER", some of each contender; it shows the one
// whose time is nearest to the median in the table.
Report ddp_report(const DdpFigures& figures, const std::vector<RankTrace>& traces);

}  // namespace ringside::cli
