#include "cli/pictures/account/account_page.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "cli/pictures/account/account.hpp"
#include "cli/pictures/chart.hpp"
#include "cli/pictures/lanes.hpp"
#include "cli/pictures/palette.hpp"
#include "planning/fit.hpp"

namespace ringside::cli {
namespace {

using planning::Account;
using planning::Plan;

// The colour of a part of a step or of a kind of memory. A name without one has the grey of the
// rest.
int colour_of_part(const std::string& name) {
  const int colour = colour_of(name);
  return colour < 0 ? 7 : colour;
}

// One horizontal bar of parts: each begins where the one before ends.
struct Bar {
  Lane lane;
  double end = 0;  // of the last part

  void add(const std::string& part, double value, const std::string& unit) {
    lane.marks.push_back({fmt::format("c{}", colour_of_part(part)),
                          fmt::format("{}: {}, {} {}", lane.name, part, table_number(value), unit),
                          end, end + value});
    end += value;
  }
};

std::string legend(const std::vector<std::string>& parts) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const std::string& part : parts)
    entries.emplace_back(fmt::format("c{}", colour_of_part(part)), part);
  return lanes_legend(entries);
}

}  // namespace

Figure memory_figure(const Account& account) {
  const double limit = account.machine.memory / 1e9,
               scale = std::max(limit, account.most_memory() / 1e9);
  Figure figure{"Memory of a rank, by kind", "<div class=\"lanes\">\n", "", memory_table(account)};
  figure.caption = fmt::format(
      "Of the {} GB of a device (10^9 bytes), the rank that needs most takes {}{}. The width of "
      "the "
      "figure stands for {} GB.",
      planning::number_text(limit), table_number(account.most_memory() / 1e9),
      account.fits() ? "" : ": the plan does not fit", planning::number_text(scale));
  for (const auto& stage : account.stages) {
    const std::string name = stage.name == "only" ? "rank" : stage.name + " stage";
    Bar bar{{name, name, scale}};
    for (const auto& row : stage.rows)
      if (row.bytes > 0) bar.add(row.kind, row.bytes / 1e9, "GB");
    figure.drawing += draw(bar.lane, scale);
  }
  figure.drawing += lanes_axis(scale, "memory (GB)") + "</div>\n" + legend(kinds_of(account));
  return figure;
}

namespace {

Figure time_figure(const Account& account) {
  const double step = account.step_seconds;
  Figure figure{
      "Time of a step, on the busiest stage", "<div class=\"lanes\">\n",
      fmt::format("A step takes {}; its largest part is {}. Communication that hides behind "
                  "computing is not drawn.",
                  text_with_unit(step, planning::Unit::seconds), account.binds().part),
      time_table(account)};
  Bar bar{{"step", "step", step * 1e3}};
  std::vector<std::string> parts;
  for (const auto& row : account.time) {
    bar.add(row.part, row.seconds * 1e3, "ms");
    parts.push_back(row.part);
  }
  figure.drawing +=
      draw(bar.lane, step * 1e3) + lanes_axis(step * 1e3, "time (ms)") + "</div>\n" + legend(parts);
  return figure;
}

}  // namespace

Figure batch_figure(const Account& account) {
  Chart chart{"Time per token of a device over the batch",
              {"tokens of a step, all ranks", true},
              {"ns per token of a device", true},
              {}};
  Figure figure{
      chart.title,
      "",
      "Each part of the step, divided by the tokens of a device, for 1, 2, 4, ... times as "
      "many micro-batches. The highest curve binds. A curve that falls is a cost of the "
      "step (gradients, bubble, optimizer): a larger batch shares it among more tokens.",
      {{"micro-batches", "tokens"}, {}}};
  std::map<std::string, Series> curves;
  std::vector<std::string> order;
  const std::int64_t first =
      account.plan.schedule == "interleaved" ? account.plan.mesh.size(parallel::Axis::pp) : 1;
  for (std::int64_t factor = 1; factor <= 512; factor *= 2) {
    Plan plan = account.plan;
    plan.micro_batches = first * factor;
    const Account each = planning::account(account.model, plan, account.machine);
    const double of_a_device = each.tokens / static_cast<double>(plan.mesh.ranks());
    std::vector<Cell> row{fmt::to_string(plan.micro_batches),
                          text_with_unit(each.tokens, planning::Unit::number)};
    for (const auto& part : each.time) {
      auto [at, is_new] = curves.try_emplace(
          part.part, Series{part.part, Series::line, {}, colour_of_part(part.part)});
      if (is_new) order.push_back(part.part);
      at->second.points.emplace_back(each.tokens, part.seconds / of_a_device * 1e9);
      row.push_back(table_number(part.seconds / of_a_device * 1e9));
    }
    figure.table.rows.push_back(row);
  }
  for (const std::string& name : order) {
    chart.series.push_back(curves.at(name));
    figure.table.head.push_back(name + " (ns)");
  }
  figure.drawing = draw(chart);
  return figure;
}

namespace {

// "dp=2, tp=4", which may be broken at the space.
std::string spaced(const std::string& mesh) {
  std::string text;
  for (const char c : mesh) {
    text += c;
    if (c == ',') text += ' ';
  }
  return text;
}

// The best plan of each mesh of as many devices, with the same batch.
Figure mesh_figure(const Account& account) {
  const Plan& plan = account.plan;
  const auto found = planning::fit(account.model, account.machine,
                                   {.devices = plan.mesh.ranks(),
                                    .batch = plan.batch(),
                                    .sequence = plan.sequence,
                                    .types = plan.types});
  const std::size_t shown = std::min<std::size_t>(found.accounts.size(), 8);
  Figure figure{
      "What binds on other meshes of as many devices",
      "<div class=\"lanes\">\n",
      fmt::format("The fastest plans for the same batch that fit, as --fit lists them: {} of "
                  "{}. Each bar is one step.",
                  shown, found.accounts.size()),
      {{"mesh", "step (ms)", "MFU (%)", "memory (GB)", "binds"}, {}}};
  if (shown == 0) {
    figure.drawing.clear();
    figure.caption = "No mesh of as many devices fits this batch.";
    return figure;
  }
  const double scale = found.accounts[shown - 1].step_seconds * 1e3;
  std::vector<std::string> all;  // of the legend
  for (std::size_t i = 0; i < shown; ++i) {
    const Account& each = found.accounts[i];
    const std::string mesh = spaced(each.plan.mesh.text());
    Bar bar{{mesh, mesh, scale}};
    for (const auto& row : each.time) {
      bar.add(row.part, row.seconds * 1e3, "ms");
      if (std::ranges::find(all, row.part) == all.end()) all.push_back(row.part);
    }
    figure.drawing += draw(bar.lane, scale);
    figure.table.rows.push_back({each.plan.mesh.text(), table_number(each.step_seconds * 1e3),
                                 fmt::format("{:.1f}", 100 * each.utilization),
                                 table_number(each.most_memory() / 1e9), each.binds().part});
  }
  figure.drawing += lanes_axis(scale, "time (ms)") + "</div>\n" + legend(all);
  return figure;
}

// escaped() shows a line's end as "?".
std::string escaped_lines(const std::string& text) {
  std::string lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines += escaped(text.substr(begin, end - begin)) + '\n';
    begin = end + 1;
  }
  return lines;
}

Figure formulas_figure(const Account& account) {
  Figure figure{"Every formula",
                fmt::format("<div class=\"scroll\"><pre>{}</pre></div>\n",
                            escaped_lines(derivation_text(account.blackboard))),
                "With symbols, with numbers, and with its source, as --explain prints it.",
                {{"where", "what", "value"}, {}}};
  for (const auto& section : account.blackboard)
    for (const auto& term : section.terms)
      figure.table.rows.push_back(
          {section.title, term.what, text_with_unit(term.value(), term.unit)});
  return figure;
}

}  // namespace

Report account_page(const Account& account) {
  Report report{"What " + account.model.name + " takes on " + account.plan.mesh.text(), {}, {}};
  report.facts = {
      {"model", fmt::format("{}: {} parameters", account.model.name,
                            text_with_unit(account.parameters, planning::Unit::number))},
      {"machine", account.machine.name + ": " + sources_text(account.machine)},
      {"devices", fmt::to_string(account.plan.mesh.ranks())},
      {"batch",
       fmt::format("{} tokens a step", text_with_unit(account.tokens, planning::Unit::number))}};
  report.figures.push_back(memory_figure(account));
  if (account.time.empty()) return report;
  report.figures.push_back(time_figure(account));
  report.figures.push_back(batch_figure(account));
  if (account.plan.mesh.ranks() > 1) report.figures.push_back(mesh_figure(account));
  report.figures.push_back(formulas_figure(account));
  return report;
}

}  // namespace ringside::cli
