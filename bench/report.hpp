// The figures of `ringside bench` as a table, as JSON and as a picture (plot.cpp).
#pragma once

#include <string>
#include <vector>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/table.hpp"
#include "collectives/call.hpp"
#include "collectives/cuda/device.hpp"

namespace ringside::cli {

// How far the samples of a figure spread: in seconds, and their standard deviation as a fraction of
// the mean. Each of the rank where it is largest.
struct SampleSpread {
  double shortest = 0, p99 = 0, longest = 0, variation = 0;
};

// What was measured of one call over one backend.
struct BenchRow {
  collectives::Call call;
  int ranks = 0;
  std::string backend;
  bool ours = false;      // it runs one of our algorithms
  bool selected = false;  // which was not named, but selected
  double seconds = 0;
  std::string choice;  // what a library says it has chosen: "RING LL128 x16"
  SampleSpread spread;
  double predicted_seconds = 0;  // by the cost model, of our algorithms; 0: not known
  double busbw_gbps = 0;         // 10^9 bytes per second, like all bandwidths here
  double limit_gbps = 0;  // the busbw of the machine's limit; 0: there is no comparable limit
  std::int64_t wrong = 0;
  int queued = 0;  // calls that queue up on a GPU (BenchOptions)
  collectives::cuda::Queueing queueing = {};
  bool in_place = false;
};

std::string bench_title(const BenchRow& row);  // "all_reduce of fp32 (sum), 4 ranks on 2 cores"

// 80 columns wide, more with long names of backends. Each table of a run has the same widths, so
// rows can be printed while others are still measured. The columns are those of nccl-tests (see its
// PERFORMANCE.md): algbw is the bytes of the buffer divided by the time. busbw is that of
// collectives::bus_bandwidth(), which is comparable with the bandwidth of a link for every
// collective and number of ranks.
Table bench_table(const std::vector<BenchRow>& rows);

// The same figures as nccl-tests prints them: a table for each backend and algorithm, a line for
// each size, out of place and in place. `per_iteration`: with the columns of its option -I (2026),
// where an iteration is a sample. `rows` are those of one number of ranks.
std::string nccl_tests_tables(const std::vector<BenchRow>& rows, bool per_iteration);

// Of the passes that measured the same, the fastest: disturbances make a pass slower, never faster.
// Elements that were wrong in any pass stay. Rows are those of the table, in JSON.
Json fastest_of_passes(const Json& rows);

// In how many cells (number of ranks, backend, size) the selected algorithm takes at most 10 %
// longer than the fastest one, and how long at worst; and how often the model predicted the time
// within 15 %. If an algorithm was measured both by name and as the selected one, its shorter time
// counts. Empty unless some cell has a selected algorithm and one that was named. `rows` are those
// of the table, in JSON.
std::string selection_in_words(const Json& rows);

// A picture of busbw over bytes on logarithmic axes: one chart for each number of ranks, one line
// for each backend, or for each of its algorithms. `rows` are those of the table, in JSON.
Json bench_plot(const Json& rows, bool by_algorithm);

}  // namespace ringside::cli
