#include "cli/report/report.hpp"

#include <fmt/format.h>

#include "cli/report/chart.hpp"
#include "cli/report/page/report_page.hpp"
#include "cli/report/text_file.hpp"

namespace ringside::cli {
namespace {

std::string html(const Table& table, const std::string& what) {
  std::string text =
      fmt::format("<div class=\"scroll\"><table><caption>{}</caption>\n<thead><tr>", escaped(what));
  for (const auto& cell : table.head)
    text += fmt::format("<th scope=\"col\">{}</th>", escaped(cell));
  text += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    text += "<tr>";
    for (const auto& cell : row) text += fmt::format("<td>{}</td>", escaped(cell));
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

std::string html(const Figure& figure) {
  const bool is_chart = figure.drawing.starts_with("<svg class=\"chart\"");
  const std::string choice =
      figure.choice.empty() ? "" : fmt::format(" data-choice=\"{}\"", escaped(figure.choice));
  std::string text = fmt::format("<figure{}{}>\n<h2>{}</h2>\n<figcaption>{}</figcaption>\n",
                                 is_chart ? "" : " class=\"wide\"", choice, escaped(figure.title),
                                 escaped(figure.caption));
  if (!figure.summary.rows.empty()) text += html(figure.summary, figure.title + ": summary");
  if (figure.drawing.empty()) return text + html(figure.table, figure.title) + "</figure>\n";
  text += figure.drawing;
  if (figure.drawing.find("tabindex") != std::string::npos)
    text +=
        "<p class=\"says\" aria-live=\"polite\">Press Tab and then the arrow keys, or point at a "
        "mark, to read its description here.</p>\n";
  return text + "<details><summary>The numbers, as a table</summary>\n" +
         html(figure.table, figure.title) + "</details>\n</figure>\n";
}

}  // namespace

std::string html(const Report& report) {
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\" />\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\" "
      "/>\n<title>{0}</title>\n<style>{1}{2}</style>\n</head>\n"
      "<body>\n<h1>{0}</h1>\n<dl>\n",
      escaped(report.title), chart_style(), report_style());
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

void write_report(const std::string& path, const Report& report) {
  write_text_file(path, html(report), "the report");
}

}  // namespace ringside::cli
