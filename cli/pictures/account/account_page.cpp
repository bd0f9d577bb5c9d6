#include "cli/pictures/account/account_page.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "cli/pictures/account/account.hpp"
#include "cli/pictures/chart.hpp"
#include "cli/pictures/lanes.hpp"
#include "cli/pictures/palette.hpp"

namespace ringside::cli {
namespace {

using planning::Account;
using planning::Unit;

// What a bar consists of: names and values.
using Parts = std::vector<std::pair<std::string, double>>;

std::string class_of(const std::string& part) {
  return fmt::format("c{}", colour_of(part));
}

// A bar of parts: each begins where the one before ends.
Lane bar(const std::string& name, const Parts& parts, double scale, const char* unit) {
  Lane lane{name, name, scale};
  double end = 0;
  for (const auto& [part, value] : parts) {
    if (value <= 0) continue;
    lane.marks.push_back({class_of(part),
                          fmt::format("{}: {}, {} {}", name, part, table_number(value), unit), end,
                          end + value});
    end += value;
  }
  return lane;
}

std::vector<std::pair<std::string, std::string>> legend(const std::vector<std::string>& parts) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const std::string& part : parts) entries.emplace_back(class_of(part), part);
  return entries;
}

Figure memory_figure(const Account& account) {
  const double limit = account.machine.memory / 1e9,
               scale = std::max(limit, account.most_memory() / 1e9);
  std::vector<Lane> bars;
  for (const auto& stage : account.stages) {
    Parts parts;
    for (const auto& row : stage.rows) parts.emplace_back(row.kind, row.bytes / 1e9);
    bars.push_back(bar(stage.name == "only" ? "rank" : stage.name + " stage", parts, scale, "GB"));
  }
  return {
      "Memory of a rank, by kind", draw(bars, scale, "memory (GB)", legend(kinds_of(account))),
      fmt::format("Of the {} GB of a device (10^9 bytes), the rank that needs most takes {}{}. "
                  "The width of the figure stands for {} GB.",
                  planning::number_text(limit), table_number(account.most_memory() / 1e9),
                  account.fits() ? "" : ": the plan does not fit", planning::number_text(scale)),
      memory_table(account)};
}

Figure time_figure(const Account& account) {
  const double step = account.step_seconds * 1e3;
  Parts parts;
  std::vector<std::string> names;
  for (const auto& row : account.time) {
    parts.emplace_back(row.part, row.seconds * 1e3);
    names.push_back(row.part);
  }
  return {"Time of a step, on the busiest stage",
          draw({bar("step", parts, step, "ms")}, step, "time (ms)", legend(names)),
          fmt::format("A step takes {}; its largest part is {}. Communication that hides behind "
                      "computing is not drawn.",
                      text_with_unit(account.step_seconds, Unit::seconds), account.binds().part),
          time_table(account)};
}

// The plan with other numbers of micro-batches. Where a curve is flat, it grows with the batch;
// where it falls, a larger batch pays it off.
Figure batch_figure(const Account& account) {
  Chart chart{"Time per token of a device over the batch",
              {"tokens of a step, all ranks", true},
              {"ns per token of a device", true},
              {}};
  planning::Plan plan = account.plan;
  plan.micro_batches = plan.schedule == "interleaved" ? plan.mesh.size(parallel::Axis::pp) : 1;
  for (int times = 0; times < 10; ++times, plan.micro_batches *= 2) {
    const Account each = planning::account(account.model, plan, account.machine);
    const double of_a_device = each.tokens / static_cast<double>(plan.mesh.ranks());
    for (const auto& [part, seconds] : each.time) {
      auto curve = std::ranges::find(chart.series, part, &Series::name);
      if (curve == chart.series.end())
        curve = chart.series.insert(curve, {part, Series::line, {}, colour_of(part)});
      curve->points.emplace_back(each.tokens, seconds / of_a_device * 1e9);
    }
  }
  return {chart.title, draw(chart),
          "Each part of the step, divided by the tokens of a device, for 1, 2, 4, ... times as "
          "many micro-batches. The highest curve binds. A curve that falls is a cost of the "
          "step (gradients, bubble, optimizer): a larger batch shares it among more tokens.",
          table_of(chart)};
}

}  // namespace

Report account_page(const Account& account) {
  Report report{"What " + account.model.name + " takes on " + account.plan.mesh.text(), {}, {}};
  report.facts = {
      {"model", fmt::format("{}: {} parameters", account.model.name,
                            text_with_unit(account.parameters, Unit::number))},
      {"machine", account.machine.name + ": " + sources_text(account.machine)},
      {"devices", fmt::to_string(account.plan.mesh.ranks())},
      {"batch", fmt::format("{} tokens a step", text_with_unit(account.tokens, Unit::number))}};
  report.figures.push_back(memory_figure(account));
  if (account.time.empty()) return report;
  report.figures.push_back(time_figure(account));
  report.figures.push_back(batch_figure(account));
  return report;
}

}  // namespace ringside::cli
