// The figures of `ringside bench` as a table, as JSON and as a drawing (plot.cpp).
#pragma once

#include <string>
#include <vector>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/table.hpp"
#include "collectives/call.hpp"

namespace ringside::cli {

// One line of the table. The columns are those of nccl-tests (see its PERFORMANCE.md): algbw is the
// bytes of the buffer divided by the time. busbw is that of collectives::bus_bandwidth(), which is
// comparable with the bandwidth of a link for every collective and number of ranks.
struct BenchRow {
  collectives::Call call;
  int ranks = 0;
  std::string backend;
  bool ours = false;  // it runs one of our algorithms
  double seconds = 0;
  double busbw_gbps = 0;  // 10^9 bytes per second, like all bandwidths here
  double limit_gbps = 0;  // the busbw of the machine's limit; 0: there is no comparable limit
  std::int64_t wrong = 0;

  std::uint64_t bytes() const { return call.count * size_of(call.type); }
  double algbw_gbps() const {
    return seconds > 0 ? static_cast<double>(bytes()) / seconds * 1e-9 : 0;
  }
  double ratio() const { return limit_gbps > 0 ? busbw_gbps / limit_gbps : 0; }
  std::string algorithm() const;  // "ring"; "library" if it is not ours
  std::string op() const;         // "sum"; "none" if nothing is reduced
};

std::string bench_title(const BenchRow& row);  // "all_reduce of fp32 (sum), 4 ranks on 2 cores"

// The table without rows, 80 columns wide; what one row has in it; and what JSON says of it
// besides.
Table bench_table();
std::vector<Cell> cells_of(const BenchRow& row);
Facts facts_of(const BenchRow& row);

// An SVG of busbw over bytes on logarithmic axes: one chart for each number of ranks, one line for
// each backend, or for each of its algorithms.
std::string bench_plot(const std::vector<Json>& rows, bool by_algorithm);

}  // namespace ringside::cli
