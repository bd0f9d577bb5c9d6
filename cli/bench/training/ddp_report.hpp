// The figures of `ringside bench ddp`, as a table for people, JSON for programs, and a page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench/training/strategies.hpp"
#include "cli/report/bucket_model.hpp"
#include "cli/report/json_file.hpp"
#include "cli/report/report.hpp"
#include "cli/report/report_figures.hpp"
#include "cli/report/trace_file.hpp"

namespace ringside::cli {

struct DdpFigures {
  std::string model, backend, link;                      // link: "" or "1 Gbps, 50 us"
  std::int64_t parameters = 0, batch = 0, sequence = 0;  // batch: of each rank
  int ranks = 0, threads = 0, steps = 0;
  std::vector<FormRow> rows;  // the step without communication first
  BucketModel buckets;
  std::vector<std::pair<double, double>>
      all_reduces;                // (bytes, seconds) that the model is fitted to
  std::vector<RankTrace> traces;  // rank 0's traces of the last step of each form
  std::vector<std::pair<std::string, Window>> windows;  // (FormRow::text(), where in the traces)

  double gradient_bytes() const { return 4.0 * static_cast<double>(parameters); }
  std::vector<MeasuredBuckets> measured_buckets() const;  // of the rows that have a bucket
};

std::string ddp_table(const DdpFigures& figures);
Json to_json(const DdpFigures& figures);
Report ddp_report(const DdpFigures& figures);

}  // namespace ringside::cli
