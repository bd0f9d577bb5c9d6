#include "cli/bench/report.hpp"

#include <thread>

#include "cli/report/numbers.hpp"
#include "collectives/algorithms/catalogue.hpp"

namespace ringside::cli {
namespace {

// "-" if there is no figure. So many digits after the point, or fewer, to fit into the column.
std::string figure(double value, int digits, std::size_t width) {
  if (value <= 0) return "-";
  std::string text = fmt::format("{:.{}f}", value, digits);
  while (text.size() > width && digits > 0) text = fmt::format("{:.{}f}", value, --digits);
  return text;
}

}  // namespace

std::string BenchRow::algorithm() const {
  return ours ? std::string(collectives::all_algorithms().at(call.algorithm).name) : "library";
}

std::string BenchRow::op() const {
  return collectives::reduces(call.collective) ? std::string(name_of(call.reduce)) : "none";
}

std::string bench_title(const BenchRow& row) {
  const std::string op = row.op() == "none" ? "" : fmt::format(" ({})", row.op());
  return fmt::format("{} of {}{}, {} on {} cores", name_of(row.call.collective),
                     name_of(row.call.type), op, counted(row.ranks, "rank"),
                     std::thread::hardware_concurrency());
}

// 80 columns.
constexpr const char* line = "{:>9} {:<8} {:<18} {:>9} {:>6} {:>6} {:>6} {:>5} {:>5}";

std::string bench_table_head() {
  return fmt::format(line, "size (B)", "backend", "algorithm", "time (us)", "algbw", "busbw",
                     "bare", "ratio", "wrong");
}

std::string bench_table_line(const BenchRow& row) {
  return fmt::format(line, row.bytes(), row.backend, row.algorithm(),
                     fmt::format("{:.{}f}", row.seconds * 1e6, row.seconds < 1e-3 ? 2 : 0),
                     figure(row.algbw_gbps(), 3, 6), figure(row.busbw_gbps, 3, 6),
                     figure(row.limit_gbps, 3, 6), figure(row.ratio(), 2, 5), row.wrong);
}

Json to_json(const BenchRow& row) {
  return {{"collective", name_of(row.call.collective)},
          {"algorithm", row.algorithm()},
          {"backend", row.backend},
          {"ranks", row.ranks},
          {"bytes", row.bytes()},
          {"type", name_of(row.call.type)},
          {"op", row.op()},
          {"time_us", row.seconds * 1e6},
          {"algbw_gbps", row.algbw_gbps()},
          {"busbw_gbps", row.busbw_gbps},
          {"limit_gbps", row.limit_gbps},
          {"ratio", row.ratio()},
          {"wrong", row.wrong}};
}

}  // namespace ringside::cli
