#include "lab/pictures/account_report.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/pictures/lanes.hpp"
#include "cli/pictures/numbers.hpp"
#include "cli/pictures/palette.hpp"
#include "lab/pictures/account.hpp"

namespace ringside::cli {
namespace {

using planning::Account;
using planning::number_text;

// A bar for each column behind the first, in so many times its unit: the parts are the rows.
std::string bars(const std::vector<std::string>& names, const Table& table, double times,
                 const char* unit, double scale) {
  std::vector<Lane> lanes;
  std::vector<std::pair<std::string, std::string>> legend;
  for (std::size_t i = 0; i < names.size(); ++i) {
    Lane lane{names[i], names[i], scale};
    double end = 0;
    for (const auto& row : table.rows) {
      const std::string part = std::get<std::string>(row[0].value);
      const double value = std::get<double>(row[i + 1].value) * times, begin = end;
      end += value;
      const std::string style = fmt::format("c{}", colour_of(part)),
                        says =
                            fmt::format("{}: {}, {} {}", names[i], part, table_number(value), unit);
      if (value > 0) lane.marks.push_back({style, says, begin, end});
      if (i == 0) legend.emplace_back(style, part);
    }
    lanes.push_back(std::move(lane));
  }
  return draw(lanes, scale, unit, legend);
}

// A row for each kind of memory, in the order in which they appear, and a column for each stage.
Table memory_table(const Account& account) {
  Table table{{words("")}};
  for (const auto& stage : account.stages) {
    const std::size_t column = table.head.size();
    table.head.push_back(
        number(stage.name == "only" ? "GB" : stage.name + ", GB", "", scaled(1e-9)));
    for (const planning::MemoryRow& part : stage.rows) {
      auto row = std::ranges::find(table.rows, Cell(part.kind),
                                   [](const std::vector<Cell>& cells) { return cells.front(); });
      if (row == table.rows.end()) {
        row = table.rows.insert(row, std::vector<Cell>(account.stages.size() + 1, 0.0));
        row->front() = part.kind;
      }
      (*row)[column] = std::get<double>((*row)[column].value) + part.bytes;
    }
  }
  return table;
}

Figure memory_of_a_rank(const Account& account) {
  const double limit = account.machine.memory, most = account.most_memory();
  Table table = memory_table(account);
  std::vector<std::string> names;
  std::vector<Cell> total{"total"};
  for (const auto& stage : account.stages) {
    names.push_back(stage.name == "only" ? "rank" : stage.name + " stage");
    total.emplace_back(stage.total());
  }
  const std::string drawing = bars(names, table, 1e-9, "GB", std::max(limit, most) / 1e9);
  const auto less = [](const planning::RankMemory& stage) { return stage.never_together > 0; };
  if (std::ranges::any_of(account.stages, less)) {
    std::vector<Cell>& row = table.rows.emplace_back(1, "less: never together");
    for (const auto& stage : account.stages) row.emplace_back(-stage.never_together);
  }
  table.rows.push_back(total);
  return {"Memory of a rank", drawing,
          fmt::format("{}: {:.{}f} % of {} GB", account.fits() ? "it fits" : "IT DOES NOT FIT",
                      100 * most / limit, most < 0.1 * limit ? 2 : 0, number_text(limit / 1e9)),
          table};
}

Table traffic_table(const Account& account) {
  Table table{{words("axis", "axis"), words("what", "what"), only_in_json("level"),
               number("calls", "calls", count_text), number("GB", "sent_bytes", scaled(1e-9)),
               number("ms", "seconds", scaled(1e3)),
               number("hidden", "hidden_seconds", scaled(1e3)),
               number("exposed", "", scaled(1e3))}};
  for (const auto& each : account.traffic)
    table.rows.push_back({each.axis, each.what, each.level, each.calls, each.bytes, each.seconds,
                          each.hidden, each.exposed()});
  return table;
}

Figure traffic_figure(const Account& account) {
  std::vector<std::string> levels;
  for (const auto& each : account.traffic) {
    const std::string level = fmt::format("{} over {}", each.axis, each.level);
    if (std::ranges::find(levels, level) == levels.end()) levels.push_back(level);
  }
  return {"Communication of a rank of the busiest stage, in one step", "",
          fmt::format("{}", fmt::join(levels, "; ")), traffic_table(account)};
}

Table time_table(const Account& account) {
  Table table{{words("part", "part"), number("ms", "seconds", scaled(1e3)),
               number("% of step", "", fixed(1, 100))}};
  for (const auto& row : account.time)
    table.rows.push_back({row.part, row.seconds, row.seconds / account.step_seconds});
  return table;
}

Figure time_figure(const Account& account) {
  std::string caption = fmt::format("step: {}\n", seconds_text(account.step_seconds));
  if (account.plan.mesh.size(parallel::Axis::pp) > 1)
    caption += fmt::format("the pipeline's bubble in closed form: {:.2f} % of the step\n",
                           100 * account.bubble_share);
  caption += fmt::format(
      "{} tokens per step, {} tokens per second\n"
      "model FLOPs {:.4g}, with recomputation {:.4g}; MFU {:.1f} %\n"
      "What binds: {}, {:.0f} % of the step.",
      count_text(account.tokens), count_text(account.tokens / account.step_seconds),
      account.model_flops, account.hardware_flops, 100 * account.utilization, account.binds().part,
      100 * account.binds().seconds / account.step_seconds);
  const Table table = time_table(account);
  return {"Time of a step, on the busiest stage",
          bars({"step"}, table, 1e3, "ms", 1e3 * account.step_seconds), caption, table};
}

}  // namespace

Report account_report(const Account& account) {
  const planning::Machine& machine = account.machine;
  const std::string memory = number_text(machine.memory / 1e9);
  Report report{"What " + account.model.name + " takes on " + account.plan.mesh.text(), {}, {}};
  report.facts = {
      {"model",
       fmt::format(
           "{}: {} parameters{}", account.model.name, count_text(account.parameters),
           account.active_parameters == 0
               ? ""
               : fmt::format(", {} for each token", count_text(account.active_parameters)))},
      {"source", account.model.source},
      {"plan", plan_text(account.plan, account.model.has_blocks())},
      {"machine", fmt::format("{}: {} GB and {} TFLOP/s per device", machine.name, memory,
                              number_text(machine.peak / 1e12))},
      {"state", fmt::format("{} GB in all: {} bytes per parameter, on at least {} of {} GB",
                            table_number(account.state_bytes / 1e9),
                            number_text(account.state_bytes / account.parameters),
                            counted(static_cast<std::int64_t>(
                                        std::ceil(account.state_bytes / machine.memory)),
                                    "device"),
                            memory)}};
  report.figures = {memory_of_a_rank(account)};
  if (!account.traffic.empty()) report.figures.push_back(traffic_figure(account));
  if (!account.time.empty()) report.figures.push_back(time_figure(account));
  return report;
}

Json account_json(const Account& account) {
  const planning::Plan& plan = account.plan;
  Json json = plan_json(account.model, account.machine, plan);
  if (plan.mesh.size(parallel::Axis::cp) > 1)
    json.update({{"context", name_of(plan.context.exchange)},
                 {"token_order", name_of(plan.context.order)}});
  json.update({{"zero", plan.zero},
               {"recompute", text_of(plan.recompute)},
               {"sequence_parallel", plan.sequence_parallel},
               {"parameters", account.parameters},
               {"active_parameters",
                account.active_parameters == 0 ? account.parameters : account.active_parameters},
               {"state_bytes", account.state_bytes},
               {"fits", account.fits()}});
  for (const auto& stage : account.stages) {
    Json kinds = Json::object();
    for (const auto& row : stage.rows) kinds[row.kind] = row.bytes;
    json["stages"].push_back({{"stage", stage.index},
                              {"name", stage.name},
                              {"memory_bytes", kinds},
                              {"never_together_bytes", stage.never_together},
                              {"total_bytes", stage.total()}});
  }
  json["traffic"] = traffic_table(account).json();
  if (account.time.empty()) return json;
  json.update({{"time", time_table(account).json()},
               {"tokens", account.tokens},
               {"model_flops", account.model_flops},
               {"hardware_flops", account.hardware_flops},
               {"bubble_share", account.bubble_share},
               {"step_seconds", account.step_seconds},
               {"mfu", account.utilization},
               {"binds", account.binds().part}});
  return json;
}

}  // namespace ringside::cli
