#include "cli/report/report.hpp"

#include <fmt/format.h>

#include "cli/report/chart.hpp"
#include "cli/report/text_file.hpp"

namespace ringside::cli {
namespace {

constexpr const char* page_style = R"(
:root { color-scheme: light dark; }
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 1360px; padding: 16px;
  background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: 8px 0 12px; }
h2 { font-size: 1.1rem; margin: 0 0 6px; }
dl {
  display: grid; grid-template-columns: max-content 1fr; gap: 2px 14px;
  margin: 0 0 20px; font-size: 0.9rem;
}
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
figure {
  margin: 0 0 28px; padding: 14px 0 0; border-top: 1px solid var(--grid); break-inside: avoid;
}
main { display: grid; grid-template-columns: minmax(0, 1fr); gap: 0 28px; align-items: start; }
@media (min-width: 1000px) {  /* two charts side by side */
  main { grid-template-columns: repeat(2, minmax(0, 1fr)); } .wide { grid-column: 1 / -1; }
}
figcaption { font-size: 0.9rem; max-width: 75ch; margin: 0 0 10px; }
.chart { display: block; width: 100%; max-width: 600px; height: auto; }
.lanes { display: grid; grid-template-columns: 1fr; gap: 0 12px; font-size: 0.8rem; }
.lanes h3 { font-size: 0.9rem; margin: 10px 0 2px; grid-column: 1 / -1; }
.lane-name { color: var(--soft); }
.lane { display: block; width: 100%; height: 28px; overflow: visible; }
.lane text { font: 12px system-ui, sans-serif; fill: #ffffff; pointer-events: none; }
.lane .under { fill: var(--grid); opacity: 0.45; }
.ticks { display: block; width: 100%; height: 22px; overflow: visible; grid-column: -2; }
.ticks text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.ticks line { stroke: var(--grid); }
.axis { grid-column: -2; color: var(--soft); text-align: center; }
@media (min-width: 640px) {
  .lanes { grid-template-columns: 8em minmax(0, 1fr); }
  .lane-name { align-self: center; text-align: right; }
}
.forward rect { fill: var(--p0); } .backward rect { fill: var(--p1); }
.weight rect { fill: var(--p5); }
.optimizer rect { fill: var(--p2); } .other rect { fill: var(--p3); }
.call rect { fill: var(--p4); } .wait rect { fill: url(#hatch); stroke: var(--hatch); }
.stripe { stroke: var(--hatch); stroke-width: 3; } .hatch-paper { fill: var(--paper); }
.lane g rect { stroke-width: 0.6; }
.lane g.call rect, .lane g.forward rect, .lane g.backward rect, .lane g.weight rect {
  stroke: var(--paper);
}
:root {
  --p0: #1f66b5; --p1: #1d7a52; --p2: #7b3f9a; --p3: #66717c; --p4: #a5480f; --p5: #7a6400;
  --hatch: #c0182b;
}
@media (prefers-color-scheme: dark) { :root {
  --p0: #2f77c8; --p1: #2a8a60; --p2: #9355b4; --p3: #6e7983; --p4: #b4581e; --p5: #857014;
  --hatch: #ff7c86;
} }
[tabindex]:focus { outline: none; }
.lane g:focus rect, .mark:focus { stroke: var(--focus); stroke-width: 3; }
.legend {
  display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 6px 0; padding: 0;
  list-style: none; font-size: 0.8rem;
}
.legend li { display: flex; align-items: center; gap: 6px; }
.legend svg { width: 20px; height: 12px; }
.says { min-height: 1.5em; margin: 6px 0; font-size: 0.85rem; color: var(--soft); }
details { font-size: 0.85rem; } summary { cursor: pointer; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 8px 0; font-size: 0.85rem; }
caption {
  position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
}
th, td {
  padding: 3px 12px 3px 0; text-align: right; border-bottom: 1px solid var(--grid);
  white-space: nowrap; vertical-align: bottom;
}
th:first-child, td:first-child { text-align: left; }
.apart { position: absolute; width: 0; height: 0; }
@media print {
  :root { color-scheme: light; --hatch: #c0182b; }
  body { max-width: none; font-size: 11pt; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .says { display: none; }
  details > * { display: block; } details summary { display: none; }
}
)";

// Left and right move between the marks of a row; up and down move to the nearest mark in time of
// the next row. The line below the figure describes the mark under the focus or the mouse.
constexpr const char* script = R"(
'use strict';
for (const figure of document.querySelectorAll('figure')) {
  const marks = [...figure.querySelectorAll('[aria-label][tabindex]')];
  if (marks.length === 0) continue;
  const says = figure.querySelector('.says');
  const rows = [...new Set(marks.map(mark => mark.parentNode))];
  const marksOf = row => marks.filter(mark => mark.parentNode === row);
  const middle = mark => {
    const box = mark.getBoundingClientRect();
    return box.left + box.width / 2;
  };
  const say = mark => { says.textContent = mark.getAttribute('aria-label'); };
  const enter = mark => {
    for (const other of marks) other.tabIndex = -1;
    mark.tabIndex = 0;
    mark.focus();
    say(mark);
  };
  const distance = (mark, x) => Math.abs(middle(mark) - x);
  const nearest = (row, x) => row === undefined ? undefined
      : marksOf(row).reduce((best, mark) => distance(mark, x) < distance(best, x) ? mark : best);
  marks[0].tabIndex = 0;
  for (const mark of marks) {
    mark.addEventListener('focus', () => say(mark));
    mark.addEventListener('mouseenter', () => say(mark));
    mark.addEventListener('click', () => enter(mark));
    mark.addEventListener('keydown', event => {
      const row = marksOf(mark.parentNode), at = row.indexOf(mark);
      const line = rows.indexOf(mark.parentNode), x = middle(mark);
      const to = { ArrowRight: row[at + 1], ArrowLeft: row[at - 1],
                   Home: row[0], End: row[row.length - 1],
                   ArrowDown: nearest(rows[line + 1], x),
                   ArrowUp: nearest(rows[line - 1], x) }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      enter(to);
    });
  }
}
)";

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
  std::string text = fmt::format("<figure{}>\n<h2>{}</h2>\n<figcaption>{}</figcaption>\n",
                                 is_chart ? "" : " class=\"wide\"", escaped(figure.title),
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
      escaped(report.title), chart_style(), page_style);
  for (const auto& [name, value] : report.facts)
    page += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value));
  page +=
      "</dl>\n<svg class=\"apart\" aria-hidden=\"true\"><defs><pattern id=\"hatch\" width=\"7\" "
      "height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect "
      "class=\"hatch-paper\" width=\"7\" height=\"7\" "
      "/><line class=\"stripe\" x1=\"2\" x2=\"2\" y1=\"0\" "
      "y2=\"7\" /></pattern></defs></svg>\n<main>\n";
  for (const auto& figure : report.figures) page += html(figure);
  return page + "</main>\n<script>" + script + "</script>\n</body>\n</html>\n";
}

void write_report(const std::string& path, const Report& report) {
  write_text_file(path, html(report), "the report");
}

}  // namespace ringside::cli
