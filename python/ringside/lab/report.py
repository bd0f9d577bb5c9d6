"""A report: facts and figures, for a terminal and as one self-contained HTML file, without network
or libraries. The page carries them as JSON, and its script draws them (page/report.js). The program
writes the same page.

It works in a browser on a light and a dark background, on a phone, in print, with a keyboard (Tab
enters a figure, the arrow keys move within it) and with a screen reader: below each figure its
numbers are given as a table.
"""

import json
import math
import os
import re
import sys
from dataclasses import dataclass, field
from html import escape
from typing import Any, Dict, List, Optional, TextIO, Tuple

from ringside import command_line
from ringside.lab.tables import Table
from ringside.library import RingsideError

PAGE = os.path.join(os.path.dirname(__file__), "page")
STYLES = ("palette.css", "chart.css", "lane.css", "report.css")


@dataclass
class Figure:
    title: str
    drawing: Optional[Dict[str, Any]]  # as in page/report.js; None: the figure is its table
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


def page_data(report: Report) -> Dict[str, Any]:
    """What the page's script draws: page/report.js has the form."""
    return {
        "title": report.title,
        "facts": [list(fact) for fact in report.facts],
        "figures": [
            {
                "title": figure.title,
                "caption": figure.caption,
                "choice": figure.choice,
                "table": figure.table.shown(),
                "drawing": figure.drawing,
            }
            for figure in report.figures
        ],
    }


def part_of_page(name: str) -> str:
    with open(os.path.join(PAGE, name), encoding="utf-8") as file:
        return file.read()


def html_of(report: Report) -> str:
    """The page. Where no script runs it shows the text of a terminal."""
    data = json.dumps(plain(page_data(report)), separators=(",", ":"), ensure_ascii=False)
    parts = {
        "title": escape(report.title),
        "style": "".join(map(part_of_page, STYLES)),
        "text": escape(f"{report.title}\n\n{text_of(report)}"),
        "data": data.replace("</", "<\\/"),  # within a script JSON has no end tag
        "script": part_of_page("report.js"),
    }
    return re.sub(r"{{(\w+)}}", lambda place: parts[place[1]], part_of_page("report.html"))


def write_text_file(path: str, text: str, what: str) -> None:
    """The error names the file and `what`: "the report"."""
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
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
