#include "bench/report.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <thread>
#include <tuple>

#include "bench/bench_options.hpp"
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

std::string_view algorithm_text(const BenchRow& row) {
  if (row.ours) return collectives::algorithm_numbered(row.call.algorithm)->name;
  return bench_backend_named(row.backend).plugin.empty() ? "library" : "plugin";
}

double algbw_gbps(const BenchRow& row) {
  const auto bytes = static_cast<double>(row.call.count * size_of(row.call.type));
  return row.seconds > 0 ? bytes / row.seconds * 1e-9 : 0;
}

// nccl-tests' names.
std::string_view nccl_name(collectives::DataType type) {
  using enum collectives::DataType;
  if (type == fp32) return "float";
  if (type == fp64) return "double";
  if (type == fp16) return "half";
  if (type == bf16) return "bfloat16";
  return name_of(type);
}
std::string_view nccl_name(collectives::ReduceOp op) {
  return op == collectives::ReduceOp::product ? "prod" : name_of(op);
}

std::string time_text(double us) {
  return fmt::format("{:.{}f}", us, us < 1e3 ? 2 : 0);
}

// What follows the name of a backend.
const char* name_of(collectives::cuda::Queueing queueing) {
  constexpr const char* names[] = {"", " group", " graph"};
  return names[static_cast<int>(queueing)];
}

}  // namespace

std::string bench_title(const BenchRow& row) {
  const collectives::Call& call = row.call;
  return fmt::format(
      "{} of {}{}, {} on {} cores{}{}", name_of(call.collective), name_of(call.type),
      collectives::reduces(call.collective) ? fmt::format(" ({})", name_of(call.reduce)) : "",
      counted(row.ranks, "rank"), std::thread::hardware_concurrency(),
      row.queued > 0 ? fmt::format("; on GPUs {} queue up", counted(row.queued, "call")) : "",
      row.in_place ? "; in place, one buffer on each" : "");
}

Table bench_table(const std::vector<BenchRow>& rows) {
  std::size_t longest = 8;  // name of a backend: all sizes have the same ones
  for (const BenchRow& row : rows)
    longest = std::max(longest, row.backend.size() + std::strlen(name_of(row.queueing)));
  Table table{.head = {only_in_json("collective"), only_in_json("ranks"), only_in_json("type"),
                       only_in_json("op"), only_in_json("queued"), only_in_json("in_place"),
                       number("size (B)", "bytes", {}, 9), words("backend", "backend", longest),
                       only_in_json("algorithm"), words("algorithm", "choice", 18),
                       only_in_json("selected"), number("time (us)", "time_us", time_text, 9),
                       only_in_json("predicted_us"), number("algbw", "algbw_gbps", figure(3, 6), 6),
                       number("busbw", "busbw_gbps", figure(3, 6), 6),
                       number("bare", "limit_gbps", figure(3, 6), 6),
                       number("ratio", "ratio", figure(2, 5), 5), number("wrong", "wrong", {}, 5)},
              .indent = 0,
              .gap = 1};
  for (const char* key : {"min_us", "p99_us", "max_us", "cv"})
    table.head.push_back(only_in_json(key));
  for (const BenchRow& row : rows) {
    const collectives::Call& call = row.call;
    const std::uint64_t bytes = call.count * size_of(call.type);
    const double algbw = algbw_gbps(row),
                 ratio = row.limit_gbps > 0 ? row.busbw_gbps / row.limit_gbps : 0;
    const std::string_view algorithm = algorithm_text(row);
    table.rows.push_back({name_of(call.collective), row.ranks, name_of(call.type),
                          collectives::reduces(call.collective) ? name_of(call.reduce) : "none",
                          row.queued, row.in_place, bytes, row.backend + name_of(row.queueing),
                          algorithm, row.choice.empty() ? algorithm : row.choice, row.selected,
                          row.seconds * 1e6, row.predicted_seconds * 1e6, algbw, row.busbw_gbps,
                          row.limit_gbps, ratio, row.wrong});
    for (const double figure : {row.spread.shortest * 1e6, row.spread.p99 * 1e6,
                                row.spread.longest * 1e6, row.spread.variation})
      table.rows.back().emplace_back(figure);
  }
  return table;
}

std::string nccl_tests_tables(const std::vector<BenchRow>& rows, bool per_iteration) {
  // By what was measured; a row that was selected stands with the others of "auto".
  std::vector<std::pair<std::string, std::vector<const BenchRow*>>> tables;
  for (const BenchRow& row : rows) {
    const std::string name = fmt::format("{} ({})", row.backend,
                                         row.selected ? "auto" : std::string(algorithm_text(row)));
    const auto found = std::ranges::find(tables, name, &decltype(tables)::value_type::first);
    (found == tables.end() ? tables.emplace_back(name, std::vector<const BenchRow*>{}) : *found)
        .second.push_back(&row);
  }
  std::string text;
  for (const auto& [name, of_table] : tables) {
    text += fmt::format("# {}, over {}\n#\n", bench_title(*of_table.front()), name);
    const std::size_t place_width = per_iteration ? 68 : 32;
    const char* const also = per_iteration ? " (+ per-iteration)" : "";
    text += fmt::format("#{:51}{:^{}}{:^{}}\n", "", fmt::format("out-of-place{}", also),
                        place_width, fmt::format("in-place{}", also), place_width);
    const auto call_columns = [&](const auto&... each) {
      text += fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", each...);
    };
    const auto place_columns = [&](const auto&... each) {
      text += fmt::format("  {:>7}  {:>6}  {:>6} {:>6}", each...);
    };
    call_columns("#       size", "count", "type", "redop", "root");
    const auto spread_columns = [&](const auto&... each) {
      if (per_iteration) text += fmt::format("  {:>7}  {:>7}  {:>7}  {:>7}", each...);
    };
    for (int place = 0; place < 2; ++place) {
      place_columns("time", "algbw", "busbw", "#wrong");
      spread_columns("i_min", "i_max", "i_p99", "i_cv%");
    }
    text += '\n';
    call_columns("#        (B)", "(elements)", "", "", "");
    for (int place = 0; place < 2; ++place) {
      place_columns("(us)", "(GB/s)", "(GB/s)", "");
      spread_columns("(us)", "(us)", "(us)", "(%)");
    }
    text += '\n';
    double sum = 0;
    std::int64_t wrong = 0;
    for (const BenchRow* row : of_table) {
      const collectives::Call& call = row->call;
      if (!row->in_place)
        call_columns(call.count * size_of(call.type), call.count, nccl_name(call.type),
                     collectives::reduces(call.collective) ? nccl_name(call.reduce) : "none",
                     collectives::has_root(call.collective) ? call.root : -1);
      const Show in_us = figure(2, 7);
      place_columns(in_us(row->seconds * 1e6), figure(2, 6)(algbw_gbps(*row)),
                    figure(2, 6)(row->busbw_gbps), row->wrong);
      spread_columns(in_us(row->spread.shortest * 1e6), in_us(row->spread.longest * 1e6),
                     in_us(row->spread.p99 * 1e6),
                     fmt::format("{:.2f}", row->spread.variation * 100));
      if (row->in_place) text += '\n';
      sum += row->busbw_gbps;
      wrong += row->wrong;
    }
    text += fmt::format("# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:g}\n\n", wrong,
                        wrong == 0 ? "OK" : "FAILED", sum / static_cast<double>(of_table.size()));
  }
  return text;
}

Json fastest_of_passes(const Json& rows) {
  Json fastest = Json::array();
  for (const Json& row : rows) {
    const auto is_same = [&](const Json& other) {
      return std::ranges::all_of(
          std::array{"ranks", "backend", "bytes", "algorithm", "selected", "in_place"},
          [&](const char* key) { return row.at(key) == other.at(key); });
    };
    const auto found = std::find_if(fastest.begin(), fastest.end(), is_same);
    if (found == fastest.end()) {
      fastest.push_back(row);
      continue;
    }
    const auto wrong = std::max(found->at("wrong"), row.at("wrong"));
    if (row.at("time_us") < found->at("time_us")) *found = row;
    (*found)["wrong"] = wrong;
  }
  return fastest;
}

std::string selection_in_words(const Json& rows) {
  struct Measured {
    double us = std::numeric_limits<double>::infinity(), predicted_us = 0;
  };
  struct Compared {
    std::string selected;
    bool has_named = false;
    std::map<std::string, Measured> algorithms;
  };
  std::map<std::tuple<int, std::string, std::uint64_t>, Compared> cells;
  for (const Json& row : rows) {
    Compared& cell = cells[{row.at("ranks"), row.at("backend"), row.at("bytes")}];
    const std::string algorithm = row.at("algorithm");
    if (row.at("selected"))
      cell.selected = algorithm;
    else
      cell.has_named = true;
    Measured& measured = cell.algorithms[algorithm];
    measured.us = std::min(measured.us, row.at("time_us").get<double>());
    measured.predicted_us = row.at("predicted_us");
  }
  int all = 0, near_the_best = 0, predicted = 0, near_the_prediction = 0;
  double worst = 0;
  std::string where;
  for (const auto& [place, cell] : cells) {
    if (cell.selected.empty() || !cell.has_named) continue;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [algorithm, measured] : cell.algorithms) {
      least = std::min(least, measured.us);
      if (measured.predicted_us == 0) continue;
      ++predicted;
      near_the_prediction += std::abs(measured.predicted_us / measured.us - 1) <= 0.15 ? 1 : 0;
    }
    const double ratio = cell.algorithms.at(cell.selected).us / least;
    ++all;
    near_the_best += ratio <= 1.1 ? 1 : 0;
    if (ratio <= worst) continue;
    worst = ratio;
    where = fmt::format("{} over {}, {} B", counted(std::get<0>(place), "rank"), std::get<1>(place),
                        std::get<2>(place));
  }
  if (all == 0) return "";
  return fmt::format(
      "auto: within 10 % of the fastest algorithm in {} of {}\nat worst {:.2f} times its time: "
      "{}\nthe cost model: within 15 % of the measured time in {} of {}\n",
      near_the_best, counted(all, "cell"), worst, where, near_the_prediction,
      counted(predicted, "measurement"));
}

}  // namespace ringside::cli
