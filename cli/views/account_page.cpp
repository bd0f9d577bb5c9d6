#include "cli/views/account_page.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "cli/report/chart.hpp"
#include "cli/views/account.hpp"
#include "planning/fit.hpp"

namespace ringside::cli {
namespace {

using planning::Account;
using planning::Plan;

// Kinds in the order of the first stage that has them.
std::vector<std::string> kinds_of(const Account& account) {
  std::vector<std::string> kinds;
  for (const auto& stage : account.stages)
    for (const auto& row : stage.rows)
      if (std::ranges::find(kinds, row.kind) == kinds.end()) kinds.push_back(row.kind);
  return kinds;
}

// The colour of a part of a step or of a kind of memory: the same in all figures. A name that is
// not here, in the order of appearance.
int colour_of(const std::string& name, std::size_t otherwise) {
  static const std::vector<std::string> parts = {
      "matrix products",           "other ops (memory bandwidth)",
      "tp communication, exposed", "pp communication, exposed",
      "pipeline bubble",           "optimizer (memory bandwidth)",
      "dp communication, exposed", "fsdp communication, exposed"};
  const auto found = std::ranges::find(parts, name);
  const auto at =
      found == parts.end() ? otherwise : static_cast<std::size_t>(found - parts.begin());
  return static_cast<int>(at % parts.size());
}

// One horizontal bar, as wide as its share of `scale`. The parts are (name, value, colour).
struct Part {
  std::string name;
  double value = 0;
  int colour = 0;
};

std::string bar(const std::string& name, const std::vector<Part>& parts, double scale,
                const std::string& unit) {
  std::string svg = fmt::format(
      "<span class=\"lane-name\">{}</span>\n<svg class=\"lane\" role=\"group\" "
      "aria-label=\"{}\">\n<rect class=\"under\" y=\"2\" width=\"100%\" height=\"24\" />\n",
      escaped(name), escaped(name));
  double x = 0;
  for (const Part& part : parts) {
    const double width = 100 * part.value / scale;
    svg += fmt::format(
        "<g role=\"img\" tabindex=\"-1\" aria-label=\"{}: {}, {} {}\"><rect class=\"c{}\" "
        "x=\"{:.3f}%\" y=\"2\" width=\"{:.3f}%\" height=\"24\" /></g>\n",
        escaped(name), escaped(part.name), table_number(part.value), unit, part.colour, x, width);
    x += width;
  }
  return svg + "</svg>\n";
}

std::string legend(const std::vector<Part>& parts) {
  std::string list = "<ul class=\"legend\">\n";
  for (const Part& part : parts)
    list += fmt::format(
        "<li><svg aria-hidden=\"true\"><rect class=\"c{}\" width=\"20\" height=\"12\" "
        "/></svg>{}</li>\n",
        part.colour, escaped(part.name));
  return list + "</ul>\n";
}

std::string ticks(double scale, const std::string& label) {
  std::string svg = "<svg class=\"ticks\" aria-hidden=\"true\">\n";
  for (const double tick : round_ticks(0, scale, 5)) {
    const double x = 100 * tick / scale;
    svg += fmt::format(
        "<line x1=\"{0:.2f}%\" x2=\"{0:.2f}%\" y1=\"0\" y2=\"5\" /><text x=\"{0:.2f}%\" y=\"18\" "
        "text-anchor=\"{1}\">{2:g}</text>\n",
        x,
        x < 2    ? "start"
        : x > 94 ? "end"
                 : "middle",
        tick);
  }
  return svg + fmt::format("</svg>\n<span class=\"axis\">{}</span>\n", escaped(label));
}

}  // namespace

Figure memory_figure(const Account& account) {
  const std::vector<std::string> kinds = kinds_of(account);
  const double limit = account.machine.memory / 1e9,
               scale = std::max(limit, account.most_memory() / 1e9);
  Figure figure{"Memory of a rank, by kind", "<div class=\"lanes\">\n", "", {{"stage"}, {}}};
  figure.caption = fmt::format(
      "Of the {} GB of a device (10^9 bytes), the rank that needs most takes {}{}. The width of "
      "the "
      "figure stands for {} GB.",
      planning::number_text(limit), table_number(account.most_memory() / 1e9),
      account.fits() ? "" : ": the plan does not fit", planning::number_text(scale));
  for (const std::string& kind : kinds) figure.table.head.push_back(kind + " (GB)");
  figure.table.head.emplace_back("total (GB)");
  for (const auto& stage : account.stages) {
    const std::string name = stage.name == "only" ? "rank" : stage.name + " stage";
    std::vector<Part> parts;
    std::vector<std::string> row{name};
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      const auto found = std::ranges::find(stage.rows, kinds[k], &planning::MemoryRow::kind);
      const double gb = found == stage.rows.end() ? 0 : found->bytes / 1e9;
      if (gb > 0) parts.push_back({kinds[k], gb, colour_of(kinds[k], k)});
      row.push_back(table_number(gb));
    }
    row.push_back(table_number(stage.total() / 1e9));
    figure.drawing += bar(name, parts, scale, "GB");
    figure.table.rows.push_back(row);
  }
  std::vector<Part> all;
  for (std::size_t k = 0; k < kinds.size(); ++k)
    all.push_back({kinds[k], 0, colour_of(kinds[k], k)});
  figure.drawing += ticks(scale, "memory (GB)") + "</div>\n" + legend(all);
  return figure;
}

namespace {

Figure time_figure(const Account& account) {
  const double step = account.step_seconds;
  Figure figure{
      "Time of a step, on the busiest stage",
      "<div class=\"lanes\">\n",
      fmt::format("A step takes {}; its largest part is {}. Communication that hides behind "
                  "computing is not drawn.",
                  text_with_unit(step, planning::Unit::seconds), account.binds().part),
      {{"part", "ms", "share (%)"}, {}}};
  std::vector<Part> parts;
  for (const auto& row : account.time) {
    parts.push_back({row.part, row.seconds * 1e3, colour_of(row.part, parts.size())});
    figure.table.rows.push_back({row.part, table_number(row.seconds * 1e3),
                                 fmt::format("{:.1f}", 100 * row.seconds / step)});
  }
  figure.drawing += bar("step", parts, step * 1e3, "ms") + ticks(step * 1e3, "time (ms)") +
                    "</div>\n" + legend(parts);
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
      account.plan.schedule == planning::Schedule::interleaved ? account.plan.mesh.size("pp") : 1;
  for (std::int64_t factor = 1; factor <= 512; factor *= 2) {
    Plan plan = account.plan;
    plan.micro_batches = first * factor;
    const Account each = planning::account(account.model, plan, account.machine);
    const double of_a_device = each.tokens / static_cast<double>(plan.mesh.devices());
    std::vector<std::string> row{fmt::to_string(plan.micro_batches),
                                 text_with_unit(each.tokens, planning::Unit::number)};
    for (const auto& part : each.time) {
      auto [at, is_new] = curves.try_emplace(
          part.part, Series{part.part, Series::line, {}, colour_of(part.part, order.size())});
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
                                   {.devices = plan.mesh.devices(),
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
  std::vector<Part> all;  // of the legend
  for (std::size_t i = 0; i < shown; ++i) {
    const Account& each = found.accounts[i];
    std::vector<Part> parts;
    for (const auto& row : each.time) {
      parts.push_back({row.part, row.seconds * 1e3, colour_of(row.part, all.size())});
      if (std::ranges::find(all, row.part, &Part::name) == all.end()) all.push_back(parts.back());
    }
    figure.drawing += bar(spaced(to_text(each.plan.mesh)), parts, scale, "ms");
    figure.table.rows.push_back({to_text(each.plan.mesh), table_number(each.step_seconds * 1e3),
                                 fmt::format("{:.1f}", 100 * each.utilization),
                                 table_number(each.most_memory() / 1e9), each.binds().part});
  }
  figure.drawing += ticks(scale, "time (ms)") + "</div>\n" + legend(all);
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
                            escaped_lines(blackboard_text(account.blackboard))),
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
  Report report{"What " + account.model.name + " takes on " + to_text(account.plan.mesh), {}, {}};
  report.facts = {
      {"model", fmt::format("{}: {} parameters", account.model.name,
                            text_with_unit(account.parameters, planning::Unit::number))},
      {"machine", account.machine.name + ": " + sources_text(account.machine)},
      {"devices", fmt::to_string(account.plan.mesh.devices())},
      {"batch",
       fmt::format("{} tokens a step", text_with_unit(account.tokens, planning::Unit::number))}};
  report.figures.push_back(memory_figure(account));
  if (account.time.empty()) return report;
  report.figures.push_back(time_figure(account));
  report.figures.push_back(batch_figure(account));
  if (account.plan.mesh.devices() > 1) report.figures.push_back(mesh_figure(account));
  report.figures.push_back(formulas_figure(account));
  return report;
}

}  // namespace ringside::cli
