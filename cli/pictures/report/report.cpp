#include "cli/pictures/report/report.hpp"

#include <fmt/format.h>

#include "cli/pictures/report/page/report_page.hpp"
#include "cli/pictures/svg.hpp"
#include "cli/pictures/text_file.hpp"
#include "cli/pictures/wrap.hpp"

namespace ringside::cli {
namespace {

Json data_of(const Report& report) {
  Json figures = Json::array();
  for (const Figure& figure : report.figures)
    figures.push_back({{"title", figure.title},
                       {"caption", figure.caption},
                       {"choice", figure.choice},
                       {"table", figure.table.shown()},
                       {"drawing", figure.drawing}});
  return {{"title", report.title}, {"facts", report.facts}, {"figures", figures}};
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
  const std::string text = fmt::format("{}\n\n{}", report.title, text_of(report));
  return report_page(escaped(report.title), escaped(text), data_of(report));
}

void write_report(const std::string& path, const Report& report, std::FILE* out) {
  if (path.empty()) return;
  write_text_file(path, html(report), "the report");
  fmt::print(out, "{}", page_line("report", path));
}

}  // namespace ringside::cli
