// The figures of `ringside bench ddp` as a table, as JSON and as a report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/training/strategies.hpp"
#include "cli/report/json_file.hpp"
#include "cli/report/report.hpp"
#include "cli/report/report_figures.hpp"
#include "cli/report/trace_file.hpp"
#include "cli/report/tracks_figure.hpp"
#include "ddp/bucket_model.hpp"

namespace ringside::cli {

struct DdpFigures {
  std::string model, backend, device = "cpu", link;      // link: "" or "1 Gbps, 50 us"
  autograd::DType dtype = autograd::DType::fp32;         // of parameters and gradients
  std::int64_t parameters = 0, batch = 0, sequence = 0;  // batch: of each rank
  int ranks = 0, threads = 0, steps = 0;
  std::vector<StrategyRow> rows;  // the step without communication first
  ddp::BucketModel buckets;
  std::vector<BucketSize> sizes;                        // with the times of rank 0
  double backward = 0;                                  // seconds, without communication
  std::vector<std::pair<double, double>> all_reduces;   // (bytes, seconds), to fit the bucket model
  std::vector<RankTrace> traces;                        // of one step of each strategy, on rank 0
  std::vector<std::pair<std::string, Window>> windows;  // (StrategyRow::text(), its step's window)

  double gradient_bytes() const {
    return static_cast<double>(size_of(dtype)) * static_cast<double>(parameters);
  }
  BucketStudy bucket_study() const;
};

std::string ddp_table(const DdpFigures& figures);
Json to_json(const DdpFigures& figures);
Report ddp_report(const DdpFigures& figures);

}  // namespace ringside::cli
