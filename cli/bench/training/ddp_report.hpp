// The figures of `ringside bench ddp` as a table, as JSON and as a report.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/bench/training/bucket_forecast.hpp"
#include "cli/bench/training/strategies.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/report/report.hpp"
#include "cli/pictures/report/report_figures.hpp"
#include "cli/pictures/report/trace_file.hpp"
#include "cli/pictures/tracks_figure.hpp"
#include "ddp/bucket_model.hpp"

namespace ringside::cli {

struct DdpFigures {
  BenchRun run;
  std::vector<StrategyRow> rows;  // the step without communication first
  ddp::BucketModel buckets;
  std::vector<BucketSize> sizes;                        // with the times of rank 0
  double backward = 0;                                  // seconds, without communication
  std::vector<std::pair<double, double>> all_reduces;   // (bytes, seconds), to fit the bucket model
  std::vector<RankTrace> traces;                        // of one step of each strategy, on rank 0
  std::vector<std::pair<std::string, Window>> windows;  // (StrategyRow::text(), its step's window)

  double gradient_bytes() const {
    return static_cast<double>(size_of(autograd::dtype_named(run.dtype))) *
           static_cast<double>(run.parameters);
  }
  BucketStudy bucket_study() const;
};

std::string ddp_table(const DdpFigures& figures);
Json to_json(const DdpFigures& figures);
Report ddp_report(const DdpFigures& figures);

}  // namespace ringside::cli
