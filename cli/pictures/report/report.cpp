#include "cli/pictures/report/report.hpp"

#include <fmt/format.h>

#include "cli/pictures/chart.hpp"
#include "cli/pictures/lanes.hpp"
#include "cli/pictures/palette.hpp"
#include "cli/pictures/report/page/report_page.hpp"
#include "cli/pictures/svg.hpp"
#include "cli/pictures/text_file.hpp"
#include "cli/pictures/wrap.hpp"

namespace ringside::cli {
namespace {

std::string html(const Figure& figure) {
  const bool is_chart = figure.drawing.starts_with("<svg class=\"chart\"");
  const std::string choice =
      figure.choice.empty() ? "" : fmt::format(" data-choice=\"{}\"", escaped(figure.choice));
  std::string text = fmt::format("<figure{}{}>\n<h2>{}</h2>\n<figcaption>{}</figcaption>\n",
                                 is_chart ? "" : " class=\"wide\"", choice, escaped(figure.title),
                                 escaped(figure.caption));
  if (figure.drawing.empty()) return text + figure.table.html(figure.title) + "</figure>\n";
  text += figure.drawing;
  if (figure.drawing.find("tabindex") != std::string::npos)
    text +=
        "<p class=\"says\" aria-live=\"polite\">Press Tab and then the arrow keys, or point at a "
        "mark, to read its description here.</p>\n";
  return text + "<details><summary>The numbers, as a table</summary>\n" +
         figure.table.html(figure.title) + "</details>\n</figure>\n";
}

}  // namespace

std::string text_of(const Report& report) {
  std::string text;
  for (const auto& [name, value] : report.facts)
    text += fmt::format("{:9}{}\n", name, wrap(value, 80, 9));
  for (const Figure& figure : report.figures) {
    text += fmt::format("\n{}\n{}", figure.title, figure.table.text());
    for (const std::string& line : lines_of(figure.caption))
      text += fmt::format("  {}\n", wrap(line, 80, 2));
  }
  return text;
}

std::string html(const Report& report) {
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\" />\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" "
      "/>\n<title>{0}</title>\n<style>{1}{2}{3}{4}</style>\n</head>\n"
      "<body>\n<h1>{0}</h1>\n<dl>\n",
      escaped(report.title), palette(), chart_style(), lane_style(), report_style());
  for (const auto& [name, value] : report.facts)
    page += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value));
  page +=
      "</dl>\n<svg class=\"apart\" aria-hidden=\"true\"><defs><pattern id=\"hatch\" width=\"7\" "
      "height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect "
      "class=\"hatch-paper\" width=\"7\" height=\"7\" "
      "/><line class=\"stripe\" x1=\"2\" x2=\"2\" y1=\"0\" "
      "y2=\"7\" /></pattern></defs></svg>\n<main>\n";
  for (const auto& figure : report.figures) page += html(figure);
  return page + "</main>\n<script>" + report_script() + "</script>\n</body>\n</html>\n";
}

void write_report(const std::string& path, const Report& report, std::FILE* out) {
  if (path.empty()) return;
  write_text_file(path, html(report), "the report");
  fmt::print(out, "{}", page_line("report", path));
}

}  // namespace ringside::cli
