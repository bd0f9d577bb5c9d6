"""Drawings beside those of report.py: a chart, lines over one axis, and lanes in a file of their
own. They are readable on a light and a dark background, in print, and on a phone."""

import math
from dataclasses import dataclass, field
from html import escape
from typing import Any, Callable, Dict, List, Sequence, Tuple

from ringside.lab.report import Lane, draw_lane, part_of_page
from ringside.lab.tables import Column, Table
from ringside.planning.json_fields import require

WIDTH, PLOT_HEIGHT, LEFT, RIGHT, BOTTOM, LEGEND_ROW, LETTER = 460, 240, 54, 18, 44, 19, 6.7


@dataclass
class Axis:
    """A logarithmic axis, with the text of a tick, such as "10 KB"."""

    label: str
    tick: Callable[[float], str]


@dataclass
class Series:
    """Points in order of x."""

    name: str
    points: List[Tuple[float, float]] = field(default_factory=list)


@dataclass
class Chart:
    title: str  # for screen readers
    x: Axis
    y: Axis
    series: List[Series] = field(default_factory=list)


class Scale:
    """Maps the values of an axis to positions in the drawing."""

    def __init__(self, values: List[float], begin: float, end: float):
        require(values, "there is nothing to draw: the axis can show none of the values")
        logs = [math.log10(value) for value in values]
        room = max(0.05 * (max(logs) - min(logs)), 0.05)
        self.low, self.high = min(logs) - room, max(logs) + room
        self.begin, self.end = begin, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> List[float]:
        """Powers of ten, and 2 and 5 times these if there are few."""
        factors = (1, 2, 5) if self.high - self.low < 2.2 else (1,)
        powers = range(math.floor(self.low), math.floor(self.high) + 1)
        return [10 ** at for at in (power + math.log10(factor) for power in powers
                                    for factor in factors) if self.low <= at <= self.high]


def text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(words)}</text>\n'


def grid_line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" />\n'


def draw_axes(chart: Chart, x: Scale, y: Scale) -> str:
    svg = ""
    for tick in x.ticks():
        svg += grid_line(x.at(tick), y.begin, x.at(tick), y.end)
        svg += text(x.at(tick), y.begin + 16, chart.x.tick(tick), "middle")
    for tick in y.ticks():
        svg += grid_line(x.begin, y.at(tick), x.end, y.at(tick))
        svg += text(x.begin - 6, y.at(tick) + 4, chart.y.tick(tick), "end")
    svg += text((x.begin + x.end) / 2, y.begin + 36, chart.x.label, "middle", ' class="soft"')
    return svg + text(4, y.end - 9, chart.y.label, "start", ' class="soft"')


def draw_series(series: Series, colour: int, x: Scale, y: Scale) -> str:
    points = "".join(f"{x.at(a):.1f},{y.at(b):.1f} " for a, b in series.points)
    return f'<polyline class="c{colour}" points="{points}" />\n'


def draw_legend(chart: Chart) -> Tuple[str, float]:
    """In as many rows as it needs, and the baseline of the last one."""
    svg, x, y = "", 4.0, 16.0
    for i, series in enumerate(chart.series):
        needed = 22 + LETTER * len(series.name) + 14
        if x > 4 and x + needed > WIDTH:
            x, y = 4.0, y + LEGEND_ROW
        svg += (f'<polyline class="c{i % 8}" points="{x:.1f},{y - 4:.1f} {x + 16:.1f},{y - 4:.1f}"'
                " />\n" + text(x + 21, y, series.name, "start"))
        x += needed
    return svg, y


def draw_chart(chart: Chart) -> str:
    """The <svg> element, without its style: page/chart.css."""
    points = [point for series in chart.series for point in series.points]
    svg, legend_ends = draw_legend(chart)
    top = legend_ends + 30
    x = Scale([point[0] for point in points], LEFT, WIDTH - RIGHT)
    y = Scale([point[1] for point in points], top + PLOT_HEIGHT, top)
    svg += draw_axes(chart, x, y)
    for i, series in enumerate(chart.series):
        svg += draw_series(series, i % 8, x, y)
    return (f'<svg class="chart" viewBox="0 0 {WIDTH} {top + PLOT_HEIGHT + BOTTOM:.0f}" '
            f'role="group" aria-label="{escape(chart.title)}">\n{svg}</svg>\n')


def table_of(chart: Chart) -> Table:
    """The numbers of a chart: a row for each x, or for about 24 of many, and a column for each
    series."""
    def digits(value: float) -> str:
        return f"{value:.4g}"
    rows: Dict[float, List[Any]] = {}
    for i, series in enumerate(chart.series):
        for x, y in series.points:
            rows.setdefault(x, [x] + [None] * len(chart.series))[i + 1] = y
    every = max(1, len(rows) // 24)
    return Table([Column(chart.x.label, "", chart.x.tick),
                  *(Column(series.name, "", digits) for series in chart.series)],
                 [rows[x] for i, x in enumerate(sorted(rows))
                  if i % every == 0 or i + 1 == len(rows)])


def lanes_file(title: str, lanes: Sequence[Lane], scale: float, pixels: float) -> str:
    """Lanes as a file of their own, without an axis; `scale` stands for so many pixels. The title
    is for screen readers."""
    margin, row = 6, 31  # a lane is 28 high
    left = max([30.0] + [14 + 7.5 * len(lane.name) for lane in lanes])
    width, height = left + pixels + margin, 2 * margin + row * len(lanes)
    content = "".join(
        f'<text class="name" x="10" y="{y + 18}">{escape(lane.name)}</text>\n' +
        draw_lane(lane, scale, pixels, f' x="{left:g}" y="{y}" width="{pixels:.0f}" height="28"')
        for y, lane in zip(range(margin, height, row), lanes))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
            f'width="{width:.0f}" height="{height}" role="img">\n<title>{escape(title)}</title>\n'
            f"<style>{part_of_page('style.css')}</style>\n"
            f'<rect class="paper" width="100%" height="100%" />\n{content}</svg>\n')
