// `ringside simulate`: how long a collective takes on a machine that is not here.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/bench/plan.hpp"
#include "cli/command.hpp"
#include "cli/report/chart.hpp"
#include "cli/report/json_file.hpp"
#include "cli/report/numbers.hpp"
#include "cli/report/report.hpp"
#include "cli/views/account.hpp"
#include "planning/collective_time.hpp"

namespace ringside::cli {
namespace {

using planning::CollectiveTime;
using planning::Machine;

constexpr const char* more = R"(
Columns: the time of each algorithm, with * at the fastest, and its bandwidth in
10^9 bytes per second. algbw: bytes of the buffer per second. busbw: algbw times
2 (n-1)/n, which compares with the rate of a link (nccl-tests).

Up to 64 ranks the schedules of all ranks are walked; beyond, a closed form is
computed. A message costs what it costs on the innermost network that holds all
ranks; there is no contention, and additions are free.

--topology takes a machine by name (ringside account --list) or a JSON file: see
planning/machine.hpp.

Examples:
  ringside simulate all_reduce -n 1024 --topology h100
  ringside simulate all_reduce -n 8,1024 --algorithm ring,halving_doubling \
      --bytes 1KB,1MB,1GB --topology machine.json --html curves.html)";

struct Arguments {
  std::string collective, topology = "h100", json, html;
  std::vector<std::int64_t> ranks{8};
  std::vector<std::string> algorithms = planning::closed_form_names();
  std::vector<std::string> bytes{"1KB", "4KB",  "16KB", "64KB",  "256KB", "1MB",
                                 "4MB", "16MB", "64MB", "256MB", "1GB"};
};

// [size][algorithm], for one number of ranks.
using Times = std::vector<std::vector<CollectiveTime>>;

Times times_of(const Arguments& args, std::int64_t ranks, const Machine& machine) {
  Times all;
  for (const std::string& bytes : args.bytes) {
    const std::uint64_t number = parse_bytes(bytes);
    require(number > 0, "--bytes {}: at least one byte is needed", bytes);
    all.emplace_back();
    for (const std::string& algorithm : args.algorithms)
      all.back().push_back(planning::all_reduce_time(algorithm, ranks, number, machine));
  }
  return all;
}

const CollectiveTime& fastest_of(const std::vector<CollectiveTime>& row) {
  return *std::ranges::min_element(row, {}, &CollectiveTime::seconds);
}

// The column of an algorithm, wide enough for its name.
int width_of(const std::string& name) {
  return std::max<int>(10, static_cast<int>(name.size()) + 2);
}

std::string table_of(const Arguments& args, const Times& times, const Machine& machine) {
  const CollectiveTime& first = times.front().front();
  std::string text =
      fmt::format("all_reduce on {} of {}, over {}; times from {}\n{:>9}",
                  counted(first.ranks, "rank"), machine.name, machine.level_for(first.ranks).name,
                  first.walked ? "the walked schedules" : "the closed forms", "bytes");
  for (const std::string& name : args.algorithms)
    text += fmt::format("{:>{}} ", name, width_of(name) - 1);
  text += fmt::format("  {:>9}{:>9}\n", "algbw", "busbw");
  for (const auto& row : times) {
    text += fmt::format("{:>9}", bytes_to_text(row.front().bytes));
    const CollectiveTime& best = fastest_of(row);
    for (std::size_t a = 0; a < row.size(); ++a)
      text += fmt::format("{:>{}}{}", text_with_unit(row[a].seconds, planning::Unit::seconds),
                          width_of(args.algorithms[a]) - 1, &row[a] == &best ? '*' : ' ');
    text += fmt::format("  {:>9}{:>9}\n", table_number(best.algbw() / 1e9),
                        table_number(best.busbw() / 1e9));
  }
  return text;
}

Json json_of(const Times& times, const Machine& machine) {
  Json all = Json::array();
  for (const auto& row : times)
    for (const CollectiveTime& time : row)
      all.push_back({{"collective", "all_reduce"},
                     {"machine", machine.name},
                     {"algorithm", time.algorithm},
                     {"ranks", time.ranks},
                     {"bytes", time.bytes},
                     {"time_us", time.seconds * 1e6},
                     {"algbw_gbps", time.algbw() / 1e9},
                     {"busbw_gbps", time.busbw() / 1e9},
                     {"walked", time.walked}});
  return all;
}

// A curve for each algorithm; `value` is the time in us or the bandwidth.
Figure figure_of(const std::string& title, const std::string& unit, const Arguments& args,
                 const Times& times, double (*value)(const CollectiveTime&)) {
  Chart chart{title, {"bytes", true}, {unit, true}, {}};
  Figure figure{title, "", "", {{"bytes"}, {}}};
  for (std::size_t a = 0; a < args.algorithms.size(); ++a) {
    Series series{args.algorithms[a], Series::line, {}, -1};
    for (const auto& row : times)
      series.points.emplace_back(static_cast<double>(row[a].bytes), value(row[a]));
    chart.series.push_back(series);
    figure.table.head.push_back(fmt::format("{} ({})", args.algorithms[a], unit));
  }
  for (const auto& row : times) {
    std::vector<std::string> cells{bytes_to_text(row.front().bytes)};
    for (const CollectiveTime& time : row) cells.push_back(table_number(value(time)));
    figure.table.rows.push_back(cells);
  }
  figure.drawing = draw(chart);
  return figure;
}

void simulate(const Arguments& args) {
  if (args.collective != "all_reduce")
    throw UsageError(
        fmt::format("there is no simulation of '{}' yet: choose all_reduce", args.collective));
  const Machine machine = planning::find_machine(args.topology);
  Report report{"All-reduce on " + machine.name, {{"machine", machine.source}}, {}};
  Json json = Json::array();
  std::string text;
  for (const std::int64_t ranks : args.ranks) {
    const Times times = times_of(args, ranks, machine);
    text += fmt::format("{}{}", text.empty() ? "" : "\n", table_of(args, times, machine));
    for (const Json& row : json_of(times, machine)) json.push_back(row);
    const std::string name =
        fmt::format("{} over {}", counted(ranks, "rank"), machine.level_for(ranks).name);
    report.figures.push_back(figure_of("Time, " + name, "us", args, times,
                                       [](const CollectiveTime& t) { return t.seconds * 1e6; }));
    report.figures.push_back(figure_of("Bus bandwidth, " + name, "GB/s", args, times,
                                       [](const CollectiveTime& t) { return t.busbw() / 1e9; }));
  }
  fmt::print(file_beside(args.json), "{}", text);
  std::fflush(file_beside(args.json));
  if (!args.json.empty()) write_json_file(args.json, json);
  if (args.html.empty()) return;
  write_report(args.html, report);
  fmt::print(file_beside(args.json), "report: {} (open it in a browser)\n", args.html);
}

}  // namespace

void add_simulate_command(CLI::App& app) {
  const auto args = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("simulate",
                         "Predict how long a collective takes on a machine that is not here")
          ->footer(more);
  command->add_option("collective", args->collective, "all_reduce")->type_name("NAME")->required();
  command->add_option("-n,--ranks", args->ranks, "Numbers of ranks, at least 2 [8]")
      ->delimiter(',')
      ->type_name("N,...")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1'000'000}).description(""));
  command
      ->add_option(
          "--algorithm", args->algorithms,
          fmt::format("Algorithms; beyond {} ranks only those of the default [{}]",
                      planning::most_ranks_walked, fmt::join(planning::closed_form_names(), ",")))
      ->delimiter(',')
      ->type_name("NAME,...");
  command->add_option("--bytes", args->bytes, "Sizes of the buffer [1KB to 1GB]")
      ->delimiter(',')
      ->type_name("SIZE,...");
  command
      ->add_option("--topology", args->topology, "Device and network: a name or a JSON file [h100]")
      ->type_name("MACHINE");
  command
      ->add_option("--json", args->json,
                   "Write the figures to this file; - writes them to standard output")
      ->type_name("FILE");
  command->add_option("--html", args->html, "Write a page with the curves to this file")
      ->type_name("FILE");
  command->callback([args] { simulate(*args); });
}

}  // namespace ringside::cli
