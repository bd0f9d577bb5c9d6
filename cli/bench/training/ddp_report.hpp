// The figures of `ringside bench ddp` as a table, as JSON and as a report.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/bench/training/bucket_forecast.hpp"
#include "cli/bench/training/strategies.hpp"
#include "cli/pictures/report/report.hpp"
#include "cli/pictures/report/report_figures.hpp"
#include "cli/pictures/report/trace_file.hpp"

namespace ringside::cli {

// Over one backend.
struct DdpFigures {
  BenchRun run;
  std::vector<StrategyRow> rows;  // the step without communication first
  BucketForecast forecast;        // with the times of rank 0

  double gradient_bytes() const {
    return static_cast<double>(size_of(autograd::dtype_named(run.dtype))) *
           static_cast<double>(run.parameters);
  }
  BucketStudy bucket_study() const;
};

BenchResult result_of(const DdpFigures& figures);

// Steps of each strategy, and the phase that is the step to show, by StrategyRow::text().
struct TracedStrategies {
  std::vector<RankTrace> ranks;
  std::map<std::string, std::string> phases;
};

// The page.
Report ddp_report(const DdpFigures& figures, const TracedStrategies& traced);

}  // namespace ringside::cli
