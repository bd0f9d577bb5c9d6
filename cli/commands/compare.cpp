// `ringside compare A B`: two training runs side by side, from their --metrics.

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/chart.hpp"
#include "cli/pictures/median.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/report/metrics.hpp"
#include "cli/pictures/report/report.hpp"

namespace ringside::cli {
namespace {

struct CompareOptions {
  std::string a, b, html;
};

using Step = Metrics::Step;

double median_of(const Metrics& run, const std::function<double(const Step&)>& value) {
  std::vector<double> values;
  for (const Step& step : run.steps) values.push_back(value(step));
  return median(values);
}

double sum_of(const Metrics& run, const std::function<double(const Step&)>& value) {
  double sum = 0;
  for (const Step& step : run.steps) sum += value(step);
  return sum;
}

// How far the losses of the steps that both runs took are apart.
std::string losses_in_words(const Metrics& a, const Metrics& b) {
  int common = 0;
  double largest = 0;
  std::int64_t where = 0;
  for (const Step& step : a.steps) {
    const Step* other = b.at(step.step);
    if (!other) continue;
    ++common;
    const double apart = std::abs(step.bits_per_byte - other->bits_per_byte);
    if (apart > largest) largest = apart, where = step.step;
  }
  if (common == 0) return "The runs have no step in common.";
  if (largest == 0) return fmt::format("The losses of {} are equal.", counted(common, "step"));
  return fmt::format("The losses of {} differ by at most {:.2g} bits per byte, in step {}.",
                     counted(common, "step"), largest, where);
}

Table table_of(const Metrics& a, const Metrics& b) {
  Table table{{words("", "", 20), {a.name, "", {}, 10}, {b.name, "", {}, 10}, "ratio"}};
  table.indent = 0;
  const auto row = [&](const std::string& name, const char* format, double of_a, double of_b) {
    table.rows.push_back({name, fmt::format(fmt::runtime(format), of_a),
                          fmt::format(fmt::runtime(format), of_b),
                          of_a > 0 ? fmt::format("{:.3f}", of_b / of_a) : ""});
  };
  const auto seconds = [](const Step& s) { return s.seconds; };
  const auto waiting = [](const Step& s) { return s.waiting_seconds; };
  row("steps", "{:.0f}", static_cast<double>(a.steps.size()), static_cast<double>(b.steps.size()));
  row("step, ms (median)", "{:.1f}", 1e3 * median_of(a, seconds), 1e3 * median_of(b, seconds));
  row("waiting, ms (median)", "{:.1f}", 1e3 * median_of(a, waiting), 1e3 * median_of(b, waiting));
  const auto tokens = [](const Step& s) { return s.tokens_per_second; };
  row("tokens/s (median)", "{:.0f}", median_of(a, tokens), median_of(b, tokens));
  row("all steps, s", "{:.1f}", sum_of(a, seconds), sum_of(b, seconds));
  row("last loss, bits/byte", "{:.4f}", a.steps.back().bits_per_byte, b.steps.back().bits_per_byte);
  if (!a.validations.empty() && !b.validations.empty())
    row("held out, bits/byte", "{:.4f}", a.validations.back().second, b.validations.back().second);
  return table;
}

Figure chart_of(const std::string& title, const std::string& unit, const Metrics& a,
                const Metrics& b, const std::function<double(const Step&)>& value) {
  Chart chart{title, {"step"}, {unit}, {}};
  Figure figure{title, {}, "", {{"run", "step", unit}, {}}};
  for (const Metrics* run : {&a, &b}) {
    Series series{run->name, run == &a ? Series::line : Series::dashed, {}, run == &a ? 0 : 1};
    for (const Step& step : run->steps) {
      series.points.emplace_back(static_cast<double>(step.step), value(step));
      figure.table.rows.push_back(
          {run->name, fmt::to_string(step.step), fmt::format("{:.4g}", value(step))});
    }
    chart.series.push_back(std::move(series));
  }
  figure.drawing = drawing_of(chart);
  return figure;
}

void compare(const CompareOptions& options) {
  const Metrics a = read_metrics(options.a), b = read_metrics(options.b);
  const Table table = table_of(a, b);
  fmt::print("{}", table.text());
  fmt::print("{}\n", losses_in_words(a, b));
  if (options.html.empty()) return;
  Report report{fmt::format("{} and {}", a.name, b.name), {}, {}};
  report.figures.push_back({"Side by side", {}, losses_in_words(a, b), table});
  report.figures.push_back(chart_of("Loss over steps", "loss (bits per byte)", a, b,
                                    [](const Step& s) { return s.bits_per_byte; }));
  report.figures.push_back(
      chart_of("Time of each step", "ms", a, b, [](const Step& s) { return 1e3 * s.seconds; }));
  write_report(options.html, report, stdout);
}

}  // namespace

void add_compare_command(CLI::App& app) {
  const auto [option, args] =
      add_command(app, "compare", "Compare two training runs: loss, time, waiting", compare);
  option("A", args.a, "The --metrics file of a run").required();
  option("B", args.b, "The --metrics file of the other run").required();
  option("--html FILE", args.html, "Write a page with both losses and step times");
}

}  // namespace ringside::cli
