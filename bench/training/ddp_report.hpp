// The figures of `ringside bench ddp` as a table, as JSON and as a report.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/trace/rank_trace.hpp"
#include "bench/training/strategies.hpp"
#include "cli/pictures/chart.hpp"
#include "cli/pictures/report/report.hpp"
#include "ddp/bucket_sizes/bucket_forecast.hpp"

namespace ringside::cli {

// Over one backend.
struct DdpFigures {
  BenchRun run;
  std::vector<StrategyRow> rows;  // the step without communication first
  ddp::BucketForecast forecast;   // with the times of rank 0

  double gradient_bytes() const {
    return static_cast<double>(size_of(autograd::dtype_named(run.dtype))) *
           static_cast<double>(run.parameters);
  }
  std::vector<StrategyRow> bucketed() const;  // the rows with a bucket size

  // Seconds of such a row: exposed by the formula, exposed by following its buckets in time, and
  // its step beyond the one without communication.
  double by_formula(const StrategyRow& row) const {
    return forecast.model.exposed_seconds(gradient_bytes(), static_cast<double>(row.calls));
  }
  double followed(const StrategyRow& row) const {
    return forecast.exposed(forecast.size_of(*row.bucket_mb));
  }
  double over_compute(const StrategyRow& row) const {
    return row.step_seconds - rows.front().step_seconds;
  }
};

// Predicted and measured exposed communication by the size of a bucket.
Chart bucket_chart(const DdpFigures& figures);
Figure bucket_figure(const DdpFigures& figures);

BenchResult result_of(const DdpFigures& figures);

// Steps of each strategy, and the phase that is the step to show, by StrategyRow::text().
struct TracedStrategies {
  std::vector<RankTrace> ranks;
  std::map<std::string, std::string> phases;
};

// The page.
Report ddp_report(const DdpFigures& figures, const TracedStrategies& traced);

}  // namespace ringside::cli
