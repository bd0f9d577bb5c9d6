// The figures of `ringside bench ddp`, as a table for people, JSON for programs, and a page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/bucket_model.hpp"
#include "cli/json_file.hpp"
#include "cli/report.hpp"
#include "cli/report_figures.hpp"
#include "cli/trace_file.hpp"

namespace ringside::cli {

// One form. Times are medians over the steps, each of the rank that was slowest in it.
struct DdpRow {
  std::string form;                 // "none" is the step without communication
  std::optional<double> bucket_mb;  // of bucketed
  double step_seconds = 0;
  double network_seconds = 0;  // calls were under way
  double exposed_seconds = 0;  // the rank stood still for them
  std::int64_t calls = 0, bytes_sent = 0;  // of a rank, in a step
  double ratio = 0;                        // to the step without communication

  std::string name() const { return bucket_mb ? fmt::format("{} {:g} MB", form, *bucket_mb) : form; }
};

struct DdpFigures {
  std::string model, backend, link;  // link: "" or "1 Gbps, 50 us"
  std::int64_t parameters = 0, batch = 0, sequence = 0;  // batch: of each rank
  int ranks = 0, threads = 0, steps = 0;
  std::vector<DdpRow> rows;  // the step without communication first
  BucketModel buckets;
  std::vector<std::pair<double, double>> all_reduces;  // (bytes, seconds) that the model is fitted to
  std::vector<RankTrace> traces;                       // rank 0's traces of the last step of each form
  std::vector<std::pair<std::string, Window>> windows;  // (DdpRow::name(), where in the traces)

  double gradient_bytes() const { return 4.0 * static_cast<double>(parameters); }
  std::vector<MeasuredBuckets> measured_buckets() const;  // of the rows that have a bucket
};

std::string ddp_table(const DdpFigures& figures);
Json to_json(const DdpFigures& figures);
Report ddp_report(const DdpFigures& figures);

}  // namespace ringside::cli
