// The figures of `ringside bench`, as a table for people, JSON for programs, and (bench_plot.cpp) a
// drawing.
#pragma once

#include <string>
#include <vector>

#include "cli/report/json_file.hpp"
#include "collectives/call.hpp"

namespace ringside::cli {

// One line: the columns of nccl-tests, with their meaning (its PERFORMANCE.md): algbw is the
// buffer's bytes by the time, busbw that by the factor which makes it comparable with what a link
// can carry, whatever the collective and the number of ranks.
struct BenchRow {
  collectives::Call call;
  int ranks = 0;
  std::string backend;
  bool ours = false;  // runs one of our algorithms
  double seconds = 0;
  double busbw_gbps = 0;  // 10^9 bytes per second, as all bandwidths here
  double limit_gbps =
      0;  // the machine's own, in terms of busbw; 0: nothing moves that could be compared
  std::int64_t wrong = 0;

  std::uint64_t bytes() const { return call.count * size_of(call.type); }
  double algbw_gbps() const {
    return seconds > 0 ? static_cast<double>(bytes()) / seconds * 1e-9 : 0;
  }
  double ratio() const { return limit_gbps > 0 ? busbw_gbps / limit_gbps : 0; }
  std::string algorithm() const;  // "ring"; "library" where it is not ours
  std::string op() const;         // "sum"; "none" where nothing is reduced
};

std::string bench_title(const BenchRow& row);  // "all_reduce of fp32 (sum), 4 ranks on 2 cores"
std::string bench_table_head();
std::string bench_table_line(const BenchRow& row);

Json to_json(const BenchRow& row);

// busbw over bytes, both on logarithmic axes, a panel for each number of ranks, a line for each
// backend. Readable on light and dark.
std::string bench_plot(const std::vector<Json>& rows);

}  // namespace ringside::cli
