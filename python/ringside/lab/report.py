"""A report: facts and figures, for a terminal and as one self-contained HTML file, without network
or libraries. The same page as that of the program: page/ has its style and its script.

It works in a browser on a light and a dark background, on a phone, in print, with a keyboard (Tab
enters a figure, the arrow keys move within it) and with a screen reader: below each figure its
numbers are given as a table.
"""

import json
import math
import os
import sys
from dataclasses import dataclass, field
from html import escape
from typing import Any, List, Optional, TextIO, Tuple

from ringside import command_line
from ringside.lab.tables import Table
from ringside.library import RingsideError

PAGE = os.path.join(os.path.dirname(__file__), "page")

# The number of the colour of what a name stands for, as in --c0 of page/palette.css: 0 blue, forward,
# what it keeps, and computing; 1 orange, backward and gradients; 2 green, W, the gradient of the
# weights alone; 3 purple, the optimizer and its state; 4 ochre, parameters; 5 red, waiting for
# another rank; 6 teal, communication; 8 ink; 9 pale, bubble. All else is 7, grey.
COLOURS = {
    "forward": 0,
    "activations": 0,
    "matrix products": 0,
    "backward": 1,
    "gradients": 1,
    "dp communication, exposed": 1,
    "backward weight": 2,
    "working memory": 2,
    "optimizer": 3,
    "optimizer state": 3,
    "optimizer (memory bandwidth)": 3,
    "parameters": 4,
    "fsdp communication, exposed": 4,
    "cp communication, exposed": 2,
    "exposed communication": 5,
    "pp communication, exposed": 5,
    "gradients under way": 5,
    "communication": 6,
    "gathered units": 6,
    "tp communication, exposed": 6,
    "other ops (memory bandwidth)": 7,
    "logits": 8,
    "launches of kernels": 8,
    "pipeline bubble": 9,
}


@dataclass
class Figure:
    title: str
    drawing: str  # HTML; empty: the figure is its table
    caption: str  # one or two sentences, or lines
    table: Table  # all numbers of the drawing
    choice: str = ""  # "step 3": the page shows the figures of one choice at a time


@dataclass
class Report:
    title: str
    facts: List[Tuple[str, str]] = field(default_factory=list)  # "ranks", "2 over shm"
    figures: List[Figure] = field(default_factory=list)


def wrap(text: str, width: int, indent: int) -> str:
    """Words in lines of at most `width` columns; all but the first begin with `indent` spaces."""
    lines: List[str] = []
    for word in text.split():
        if lines and indent + len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return ("\n" + " " * indent).join(lines)


def text_of(report: Report) -> str:
    """For a terminal: the facts, then each figure's title, table and caption, in 80 columns."""
    text = "".join(f"{name:9}{wrap(value, 80, 9)}\n" for name, value in report.facts)
    for figure in report.figures:
        text += f"\n{figure.title}\n{figure.table.text()}"
        text += "".join(f"  {wrap(line, 80, 2)}\n" for line in figure.caption.splitlines())
    return text


# Lanes: rows of marks over one axis. Positions are percentages of the width, so that lanes fit any
# window while their text keeps its size.


@dataclass
class Mark:
    """A stretch of the axis. Its class gives it its colour."""

    style: str  # "forward", "c3"
    says: str  # for the line below the figure, and for screen readers
    begin: float
    end: float
    text: str = ""  # in the mark, if there is room


@dataclass
class Lane:
    name: str  # in the column on the left
    description: str  # for screen readers
    end: float  # of the ground under the marks
    marks: List[Mark] = field(default_factory=list)
    attributes: str = ""  # for the page's script
    heading: str = ""  # above the lane


def _mark(mark: Mark, scale: float, pixels: float) -> str:
    x, width = 100 * mark.begin / scale, max(0.08, 100 * (mark.end - mark.begin) / scale)
    text = ""
    if mark.text and 4 + 7.5 * len(mark.text) <= pixels * width / 100:
        text = (
            f'<text x="{x + width / 2:.3f}%" y="18" aria-hidden="true">{escape(mark.text)}</text>'
        )
    return (
        f'<g class="{mark.style}" role="img" tabindex="-1" aria-label="{escape(mark.says)}">'
        f'<rect x="{x:.3f}%" y="2" width="{width:.3f}%" height="24" />{text}</g>\n'
    )


def draw_lane(lane: Lane, scale: float, pixels: float, attributes: str) -> str:
    """A mark's text is there if there is room for it, where `scale` stands for so many pixels."""
    return (
        f'<svg class="lane"{attributes} role="group" aria-label="'
        f'{escape(lane.description)}">\n'
        f'<rect class="under" y="2" width="{100 * lane.end / scale:.3f}%" height="24" />\n'
        + "".join(_mark(mark, scale, pixels) for mark in lane.marks)
        + "</svg>\n"
    )


def round_ticks(low: float, high: float, wanted: int) -> List[float]:
    """About `wanted` round numbers from `low` to `high`."""
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(
        factor * power
        for factor in (1.0, 2.0, 5.0, 10.0)
        if factor == 10.0 or factor * power >= rough * 0.999
    )
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def draw_lanes(lanes: List[Lane], scale: float, axis: str, legend: List[Tuple[str, str]]) -> str:
    """Lanes whose width stands for `scale`; below them the axis, from 0 to `scale`, and a legend
    from pairs of a class and what it means."""
    page = '<div class="lanes">\n'
    for lane in lanes:
        if lane.heading:
            page += f"<h3>{escape(lane.heading)}</h3>\n"
        page += f'<span class="lane-name">{escape(lane.name)}</span>\n' + draw_lane(
            lane, scale, 350, lane.attributes
        )  # pixels of a phone
    page += '<svg class="ticks" aria-hidden="true">\n'
    for tick in round_ticks(0, scale, 5):
        x = 100 * tick / scale
        anchor = "start" if x < 2 else "end" if x > 94 else "middle"
        page += (
            f'<line x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="5" /><text x="{x:.2f}%" y="18" '
            f'text-anchor="{anchor}">{tick:g}</text>\n'
        )
    page += f'</svg>\n<span class="axis">{escape(axis)}</span>\n</div>\n<ul class="legend">\n'
    page += "".join(
        f'<li><svg aria-hidden="true"><g class="{style}"><rect width="20" height="12" '
        f"/></g></svg>{escape(meaning)}</li>\n"
        for style, meaning in legend
    )
    return page + "</ul>\n"


# The page. It is well-formed like XML: every tag is closed, every attribute quoted.


def _figure_html(figure: Figure) -> str:
    is_chart = figure.drawing.startswith('<svg class="chart"')
    choice = f' data-choice="{escape(figure.choice)}"' if figure.choice else ""
    wide = "" if is_chart else ' class="wide"'
    text = f"<figure{wide}{choice}>" + (
        f"\n<h2>{escape(figure.title)}</h2>\n<figcaption>{escape(figure.caption)}</figcaption>\n"
    )
    if not figure.drawing:
        return text + figure.table.html(figure.title) + "</figure>\n"
    text += figure.drawing
    if "tabindex" in figure.drawing:
        text += (
            '<p class="says" aria-live="polite">Press Tab and then the arrow keys, or point '
            "at a mark, to read its description here.</p>\n"
        )
    return (
        text
        + "<details><summary>The numbers, as a table</summary>\n"
        + figure.table.html(figure.title)
        + "</details>\n</figure>\n"
    )


def part_of_page(name: str) -> str:
    with open(os.path.join(PAGE, name), encoding="utf-8") as file:
        return file.read()


def picture_style() -> str:
    """Of charts and lanes, in the palette."""
    return "".join(part_of_page(name) for name in ("palette.css", "chart.css", "lane.css"))


def html_of(report: Report) -> str:
    title = escape(report.title)
    facts = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>\n" for name, value in report.facts
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8" />\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />'
        f"<title>{title}</title>\n<style>{picture_style()}"
        f"{part_of_page('report.css')}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<dl>\n"
        f'{facts}</dl>\n<svg class="apart" aria-hidden="true"><defs><pattern id="hatch" '
        'width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect class="hatch-paper" width="7" height="7" /><line class="stripe" x1="2" x2="2" '
        'y1="0" y2="7" /></pattern></defs></svg>\n<main>\n'
        + "".join(map(_figure_html, report.figures))
        + f"</main>\n<script>{part_of_page('report.js')}</script>\n</body>\n</html>\n"
    )


def write_text_file(path: str, text: str, what: str) -> None:
    """The error names the file and `what`: "the report"."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise RingsideError(f"cannot write {what} to {path}: {error.strerror}") from None


def write_report(path: Optional[str], report: Report, out: TextIO) -> None:
    """Writes the page, and says where it is."""
    if path:
        write_text_file(path, html_of(report), "the report")
        print(f"report, to open in a browser: {path}", file=out)


# JSON.


def plain(value: Any) -> Any:
    """A value without infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def write_json_file(path: str, value: Any) -> None:
    """Indented. `path` may be standard output, as - or /dev/stdout."""
    text = json.dumps(plain(value), indent=2, ensure_ascii=False) + "\n"
    sys.stdout.flush()  # so that what is printed stands before an error
    if path in ("-", "/dev/stdout"):
        command_line.write_text("-", text)
    else:
        write_text_file(path, text, "the figures")
