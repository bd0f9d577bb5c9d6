#include "cli/bench/report.hpp"

#include <thread>

#include "cli/bench/bench_options.hpp"
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

std::string bench_title(const BenchRow& row) {
  const collectives::Call& call = row.call;
  return fmt::format(
      "{} of {}{}, {} on {} cores", name_of(call.collective), name_of(call.type),
      collectives::reduces(call.collective) ? fmt::format(" ({})", name_of(call.reduce)) : "",
      counted(row.ranks, "rank"), std::thread::hardware_concurrency());
}

Table bench_table(const std::vector<BenchRow>& rows) {
  Table table{.head = {only_in_json("collective"), only_in_json("ranks"), only_in_json("type"),
                       only_in_json("op"), number("size (B)", "bytes", {}, 9),
                       words("backend", "backend", 8), words("algorithm", "algorithm", 18),
                       number("time (us)", "time_us", time_text, 9),
                       number("algbw", "algbw_gbps", figure(3, 6), 6),
                       number("busbw", "busbw_gbps", figure(3, 6), 6),
                       number("bare", "limit_gbps", figure(3, 6), 6),
                       number("ratio", "ratio", figure(2, 5), 5), number("wrong", "wrong", {}, 5)},
              .indent = 0,
              .gap = 1};
  for (const BenchRow& row : rows) {
    const collectives::Call& call = row.call;
    const std::uint64_t bytes = call.count * size_of(call.type);
    const double algbw = row.seconds > 0 ? static_cast<double>(bytes) / row.seconds * 1e-9 : 0,
                 ratio = row.limit_gbps > 0 ? row.busbw_gbps / row.limit_gbps : 0;
    table.rows.push_back(
        {name_of(call.collective), row.ranks, name_of(call.type),
         collectives::reduces(call.collective) ? name_of(call.reduce) : "none", bytes, row.backend,
         row.ours ? collectives::algorithm_numbered(call.algorithm)->name
         : bench_backend_named(row.backend).plugin.empty() ? "library"
                                                           : "plugin",
         row.seconds * 1e6, algbw, row.busbw_gbps, row.limit_gbps, ratio, row.wrong});
  }
  return table;
}

}  // namespace ringside::cli
