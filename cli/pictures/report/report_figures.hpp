// The charts of the reports: memory over a step, the loss, and the cost of buckets. The tracks of
// the ranks are in tracks_figure.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/pictures/chart.hpp"
#include "cli/pictures/report/report.hpp"
#include "cli/pictures/report/trace_file.hpp"
#include "ddp/bucket_model.hpp"

namespace ringside::cli {

// The memory of one rank over the window, stacked by kind.
Figure memory_figure(const RankTrace& trace, const Window& window);

// The loss over the steps, from (step, bits per byte).
Figure loss_figure(const std::vector<std::pair<std::int64_t, double>>& bits_per_byte);

// One measured bucket size.
struct MeasuredBuckets {
  std::string name;         // "bucketed 10 MB"
  double calls = 0;         // per step
  double followed = 0;      // exposed seconds as predicted by ddp::exposed_seconds()
  double exposed = 0;       // seconds
  double over_compute = 0;  // step time minus step time without communication, seconds
};

// Predicted and measured exposed communication by the size of a bucket.
struct BucketStudy {
  ddp::BucketModel model;
  double gradient_bytes = 0;
  std::vector<std::pair<double, double>> followed;  // (mean bytes of a bucket, exposed seconds)
  double best_followed_mb = 0;                      // the limit of the best of these
  std::vector<MeasuredBuckets> measured;
};
Chart bucket_chart(const BucketStudy& study);
Figure bucket_figure(const BucketStudy& study);

}  // namespace ringside::cli
