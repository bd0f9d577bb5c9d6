// The figures of the reports: what every rank did when, how much memory it held, how the loss fell,
// and what buckets cost.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/report/bucket_model.hpp"
#include "cli/report/chart.hpp"
#include "cli/report/report.hpp"
#include "cli/report/trace_file.hpp"

namespace ringside::cli {

// A part of a trace: what began and ended within it.
struct Window {
  double begin = 0, end = 0;  // seconds
  double seconds() const { return end - begin; }
};

// One rank's lanes in numbers, seconds.
struct LaneTotals {
  double computing = 0;  // in phases, without the waits in them
  double network = 0;    // calls under way
  double exposed = 0;    // the rank stood still for them
  int calls = 0;
};
LaneTotals totals_of(const RankTrace& trace, const Window& window);

// Two lanes for each rank, with exposed communication hatched. `scale` is how many seconds the
// width stands for, at least the window: figures with the same scale can be held against each
// other.
Figure lanes_figure(const std::string& title, const std::vector<RankTrace>& ranks,
                    const Window& window, double scale);

// What one rank held in the window, stacked by kind.
Figure memory_figure(const RankTrace& trace, const Window& window);

Figure loss_figure(
    const std::vector<std::pair<std::int64_t, double>>& bits_per_byte);  // [(step, bits)]

// A form's figure in the bucket figure.
struct MeasuredBuckets {
  std::string name;         // "bucketed 10 MB"
  double calls = 0;         // in a step
  double exposed = 0;       // seconds
  double over_compute = 0;  // how much longer a step is than one without communication, seconds
};
Chart bucket_chart(const BucketModel& model, double gradient_bytes,
                   const std::vector<MeasuredBuckets>& measured);
Figure bucket_figure(const BucketModel& model, double gradient_bytes,
                     const std::vector<MeasuredBuckets>& measured);

}  // namespace ringside::cli
