"""Drawings beside those of report.py: curves over logarithmic axes, and lanes in a file. They are readable on a light and a dark background, in print, and on a phone."""

import math
from html import escape
from typing import Callable, Dict, List, Sequence, Tuple

from ringside.lab.report import Lane, draw_lane, picture_style

WIDTH, PLOT_HEIGHT, LEFT, RIGHT, BOTTOM, LEGEND_ROW, LETTER = 460, 240, 54, 18, 44, 19, 6.7
Ticks = Callable[[float], str]  # how a tick is written, such as "10 KB"


class Scale:
    """Maps the values of a logarithmic axis to positions in the drawing."""

    def __init__(self, values: Sequence[float], begin: float, end: float):
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
        logs = [
            power + math.log10(factor)
            for factor in factors
            for power in range(math.floor(self.low), math.floor(self.high) + 1)
        ]
        return [10**log for log in sorted(logs) if self.low <= log <= self.high]


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(words)}</text>\n'


def _grid_line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" />\n'


def draw_curves(
    title: str,
    curves: Dict[str, List[Tuple[float, float]]],
    x_axis: Tuple[str, Ticks],
    y_axis: Tuple[str, Ticks],
) -> str:
    """The <svg> element, without its style; the title is for screen readers. An axis is its label
    and the text of its ticks."""
    svg, left, top = "", 4.0, 16.0  # the legend, in as many rows as it needs
    for i, name in enumerate(curves):
        needed = 22 + LETTER * len(name) + 14
        if left > 4 and left + needed > WIDTH:
            left, top = 4.0, top + LEGEND_ROW
        svg += (
            f'<polyline class="c{i % 8}" points="{left:.1f},{top - 4:.1f} '
            f'{left + 16:.1f},{top - 4:.1f}" />\n' + _text(left + 21, top, name, "start")
        )
        left += needed
    top += 30
    x = Scale([point[0] for curve in curves.values() for point in curve], LEFT, WIDTH - RIGHT)
    y = Scale([point[1] for curve in curves.values() for point in curve], top + PLOT_HEIGHT, top)
    for tick in x.ticks():
        svg += _grid_line(x.at(tick), y.begin, x.at(tick), y.end) + _text(
            x.at(tick), y.begin + 16, x_axis[1](tick), "middle"
        )
    for tick in y.ticks():
        svg += _grid_line(x.begin, y.at(tick), x.end, y.at(tick)) + _text(
            x.begin - 6, y.at(tick) + 4, y_axis[1](tick), "end"
        )
    soft = ' class="soft"'
    svg += _text((x.begin + x.end) / 2, y.begin + 36, x_axis[0], "middle", soft)
    svg += _text(4, y.end - 9, y_axis[0], "start", soft)
    for i, curve in enumerate(curves.values()):
        points = "".join(f"{x.at(a):.1f},{y.at(b):.1f} " for a, b in curve)
        svg += f'<polyline class="c{i % 8}" points="{points}" />\n'
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {top + PLOT_HEIGHT + BOTTOM:.0f}" '
        f'role="group" aria-label="{escape(title)}">\n{svg}</svg>\n'
    )


def lanes_file(title: str, lanes: Sequence[Lane], scale: float, pixels: float) -> str:
    """Lanes as a file of their own, without an axis; `scale` stands for so many pixels. The title
    is for screen readers."""
    margin, row = 6, 31  # a lane is 28 high
    left = max([30.0] + [14 + 7.5 * len(lane.name) for lane in lanes])
    width, height = left + pixels + margin, 2 * margin + row * len(lanes)
    content = "".join(
        f'<text class="name" x="10" y="{y + 18}">{escape(lane.name)}</text>\n'
        + draw_lane(lane, scale, pixels, f' x="{left:g}" y="{y}" width="{pixels:.0f}" height="28"')
        for y, lane in zip(range(margin, height, row), lanes)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" role="img">\n<title>{escape(title)}</title>\n'
        f"<style>{picture_style()}</style>\n"
        f'<rect class="paper" width="100%" height="100%" />\n{content}</svg>\n'
    )
