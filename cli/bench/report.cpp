#include "cli/bench/report.hpp"

#include <thread>

#include "cli/pictures/numbers.hpp"
#include "collectives/algorithms/catalogue.hpp"

namespace ringside::cli {
namespace {

// "-" if there is no figure. So many digits after the point, or fewer, to fit into the column.
Show figure(int digits, std::size_t width) {
  return [=](double value) {
    if (value <= 0) return std::string("-");
    std::string text = fmt::format("{:.{}f}", value, digits);
    for (int fewer = digits - 1; text.size() > width && fewer >= 0; --fewer)
      text = fmt::format("{:.{}f}", value, fewer);
    return text;
  };
}

std::string time_text(double us) {
  return fmt::format("{:.{}f}", us, us < 1e3 ? 2 : 0);
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

Table bench_table() {
  return {
      .head = {number("size (B)", "bytes", {}, 9), words("backend", "backend", 8),
               words("algorithm", "algorithm", 18), number("time (us)", "time_us", time_text, 9),
               number("algbw", "algbw_gbps", figure(3, 6), 6),
               number("busbw", "busbw_gbps", figure(3, 6), 6),
               number("bare", "limit_gbps", figure(3, 6), 6),
               number("ratio", "ratio", figure(2, 5), 5), number("wrong", "wrong", {}, 5)},
      .indent = 0,
      .gap = 1};
}

std::vector<Cell> cells_of(const BenchRow& row) {
  return {row.bytes(),    row.backend,    row.algorithm(), row.seconds * 1e6, row.algbw_gbps(),
          row.busbw_gbps, row.limit_gbps, row.ratio(),     row.wrong};
}

Facts facts_of(const BenchRow& row) {
  return {{"collective", name_of(row.call.collective)},
          {"ranks", row.ranks},
          {"type", name_of(row.call.type)},
          {"op", row.op()}};
}

}  // namespace ringside::cli
