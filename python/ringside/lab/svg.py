"""Pictures as SVG files of their own: what --svg of a command draws, here and of the program, which
hands over the picture as JSON (`python3 -m ringside draw`). A file is readable on a light and a
dark background, in print, and on a phone. Its form is one of

    {"title": "...", "charts": [{"title": "4 ranks", "drawing": {"kind": "chart", ...}}, ...]}
    {"title": "...", "scale": 33, "pixels": 900,       the width, in the unit of the marks
     "lanes": [{"name": "0", "says": "rank 0", "end": 33,
                "marks": [["forward", "0F0", 0, 1, "0"], ...]}, ...]}
                            colour, words for screen readers, begin, end, text

with charts as in page/report.js, on logarithmic axes, of lines and dots. The title is for screen
readers. Lanes have no axis.
"""

import math
from html import escape
from typing import Any, Dict, List, Sequence, Tuple

from ringside.lab.numbers import bytes_to_text
from ringside.lab.report import part_of_page

WIDTH, PLOT_HEIGHT, LEFT, RIGHT, BOTTOM, LEGEND_ROW, LETTER = 460, 240, 54, 18, 44, 19, 6.7
TITLE_HEIGHT = 24


class Scale:
    """Maps the values of a logarithmic axis to places in the drawing."""

    def __init__(self, axis: Dict[str, Any], values: Sequence[float], begin: float, end: float):
        logs = [math.log10(value) for value in values]
        room = max(0.05 * (max(logs) - min(logs)), 0.05)
        self.low, self.high = min(logs) - room, max(logs) + room
        self.begin, self.end, self.label, self.unit = begin, end, axis["label"], axis["unit"]

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def text(self, value: float) -> str:
        return bytes_to_text(round(value)) if self.unit == "bytes" else f"{value:g}"

    def ticks(self) -> List[float]:
        """Powers of ten, and 2 and 5 times these if there are few."""
        factors = (1, 2, 5) if self.high - self.low < 2.2 else (1,)
        logs = [
            power + math.log10(factor)
            for power in range(math.floor(self.low), math.floor(self.high) + 1)
            for factor in factors
        ]
        return [10**log for log in logs if self.low <= log <= self.high]


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(words)}</text>\n'


def _grid_line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" />\n'


def _series(style: str, colour: int, points: Sequence[Tuple[float, float]]) -> str:
    """A line, or dots, through places in the drawing."""
    if style == "dots":
        circle = '<circle class="c{}" cx="{:.1f}" cy="{:.1f}" r="4.5" />\n'
        return "".join(circle.format(colour, x, y) for x, y in points)
    dashed = " dashed" if style == "dashed" else ""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="c{colour}{dashed}" points="{places}" />\n'


def _legend(series: List[Dict[str, Any]]) -> Tuple[str, float]:
    """In as many rows as it needs, and the baseline of the last."""
    svg, left, bottom = "", 4.0, 16.0
    for each in series:
        needed = 22 + LETTER * len(each["name"]) + 14
        if left > 4 and left + needed > WIDTH:
            left, bottom = 4.0, bottom + LEGEND_ROW
        sign = [(left + 8, bottom - 4)]
        if each["style"] != "dots":
            sign = [(left, bottom - 4), (left + 16, bottom - 4)]
        svg += _series(each["style"], each["colour"], sign)
        svg += _text(left + 21, bottom, each["name"], "start")
        left += needed
    return svg, bottom


def _chart(title: str, chart: Dict[str, Any], y: float) -> Tuple[str, float]:
    """A chart, to be placed at this height below its title, and where it ends."""
    curves = [[(a, b) for a, b in each["points"] if a > 0 and b > 0] for each in chart["series"]]
    points = [point for curve in curves for point in curve]
    svg, top = _legend(chart["series"])
    top += 30
    bottom = top + PLOT_HEIGHT
    across = Scale(chart["x"], [x for x, _ in points], LEFT, WIDTH - RIGHT)
    up = Scale(chart["y"], [y for _, y in points], bottom, top)
    for tick in across.ticks():
        x = across.at(tick)
        svg += _grid_line(x, bottom, x, top) + _text(x, bottom + 16, across.text(tick), "middle")
    for tick in up.ticks():
        at = up.at(tick)
        svg += _grid_line(LEFT, at, WIDTH - RIGHT, at)
        svg += _text(LEFT - 6, at + 4, up.text(tick), "end")
    soft = ' class="soft"'
    svg += _text((LEFT + WIDTH - RIGHT) / 2, bottom + 36, across.label, "middle", soft)
    svg += _text(4, top - 9, up.label, "start", soft)
    for each, curve in zip(chart["series"], curves):
        svg += _series(each["style"], each["colour"], [(across.at(a), up.at(b)) for a, b in curve])
    height = bottom + BOTTOM
    return (
        f'{_text(4, y + 16, title, "start")}<svg class="chart" y="{y + TITLE_HEIGHT:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'role="group" aria-label="{escape(title)}">\n{svg}</svg>\n'
    ), y + TITLE_HEIGHT + height


def _mark(mark: Sequence[Any], scale: float, pixels: float) -> str:
    """Its text is there if there is room for it, where `scale` stands for so many pixels."""
    style, says, begin, end, text = mark
    x, width = 100 * begin / scale, max(0.08, 100 * (end - begin) / scale)
    shown = ""
    if text and 4 + 7.5 * len(text) <= pixels * width / 100:
        shown = f'<text x="{x + width / 2:.3f}%" y="18" aria-hidden="true">{escape(text)}</text>'
    return (
        f'<g class="{style}" role="img" tabindex="-1" aria-label="{escape(says)}">'
        f'<rect x="{x:.3f}%" y="2" width="{width:.3f}%" height="24" />{shown}</g>\n'
    )


def _lane(lane: Dict[str, Any], scale: float, pixels: float, left: float, y: float) -> str:
    return (
        f'<text class="name" x="10" y="{y + 18:g}">{escape(lane["name"])}</text>\n'
        f'<svg class="lane" x="{left:g}" y="{y:g}" width="{pixels:.0f}" height="28" role="group" '
        f'aria-label="{escape(lane["says"])}">\n'
        f'<rect class="under" y="2" width="{100 * lane["end"] / scale:.3f}%" height="24" />\n'
        + "".join(_mark(mark, scale, pixels) for mark in lane["marks"])
        + "</svg>\n"
    )


def svg_of(picture: Dict[str, Any]) -> str:
    """The file."""
    content, style = "", part_of_page("palette.css")
    if "charts" in picture:
        style += part_of_page("chart.css")
        width, bottom = float(WIDTH), float(TITLE_HEIGHT)
        content = f'<g class="chart">\n{_text(4, 16, picture["title"], "start")}'
        for chart in picture["charts"]:
            drawn, bottom = _chart(chart["title"], chart["drawing"], bottom)
            content += drawn
        content += "</g>\n"
    else:
        style += part_of_page("lane.css")
        margin, row = 6, 31  # a lane is 28 high
        lanes, pixels = picture["lanes"], picture["pixels"]
        left = max([30.0] + [14 + 7.5 * len(lane["name"]) for lane in lanes])
        width, bottom = left + pixels + margin, float(margin + row * len(lanes) + margin)
        for i, lane in enumerate(lanes):
            content += _lane(lane, picture["scale"], pixels, left, margin + row * i)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {bottom:.0f}" '
        f'width="{width:.0f}" height="{bottom:.0f}" role="img">\n'
        f"<title>{escape(picture['title'])}</title>\n<style>{style}</style>\n"
        f'<rect class="paper" width="100%" height="100%" />\n{content}</svg>\n'
    )
