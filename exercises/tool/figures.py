#!/usr/bin/env python3
"""Draws the figures of the handouts, exercises/NN-slug/figure.svg, from figure.json beside them:

    figures.py PROGRAM [NN ...]      PROGRAM is build/release/bin/ringside, which knows the schedules
    figures.py --check PROGRAM       exits 1 if a figure is not what would be drawn

A figure has no words, so all languages share it; the handout says what it shows. figure.json has
one of these (lengths are in units of your own; a color is a number, null is grey):

    {"lanes": [[[0, 4, 1], [4, 6, 2, "hatched"]], [], ...]}     rows of [from, to, color]; [] is a gap
    {"schedule": "reduce_scatter -n 4", "states": [0, 1, 3]}    of `ringside step`: what each rank holds
    {"cells": [[[[0], [0, 1], []], ...], ...]}                  tables side by side: [table][row][column], the colors in a cell
    {"curves": [[[x, y], ...], ...], "dots": [[x, y], ...]}     lines and dots on a plane; each line in its color
"""
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLORS = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#edc948", "#9c755f"]
GREY = "#7d848c"  # seen on white and on black
WIDTH = 720


def color(number):
    return GREY if number is None else COLORS[number % len(COLORS)]


def rectangle(x, y, width, height, fill, more=""):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"{more}/>'


def svg(height, parts):
    hatch = (f'<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
             f'<path d="M0 0 V6" stroke="{GREY}" stroke-width="2"/></pattern></defs>')
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}">',
                      hatch, *parts, "</svg>", ""])


def lanes(rows):
    end = max(span[1] for row in rows for span in row)
    y, parts = 6, []
    for row in rows:
        for begin, until, number, *style in row:
            x, width = 6 + (WIDTH - 12) * begin / end, (WIDTH - 12) * (until - begin) / end
            fill, edge = ("url(#hatch)", f' stroke="{color(number)}"') if style else (color(number), "")
            parts.append(rectangle(x + 0.5, y, width - 1, 24, fill, f' rx="3"{edge}'))
        y += 30 if row else 14
    return svg(y, parts)


def cells(tables):
    """A cell is divided into as many stripes as the figure has colors, so that a color always has the same place."""
    stripes = 1 + max(number for table in tables for row in table for cell in row for number in cell)
    columns = sum(len(table[0]) for table in tables)
    side = min(44, (WIDTH - 12 - 28 * (len(tables) - 1)) / columns)
    parts, left = [], 6
    for table in tables:
        for r, row in enumerate(table):
            for c, cell in enumerate(row):
                x, y = left + c * side, 6 + r * (side + 6)
                for number in cell:
                    parts.append(rectangle(x + 2, y + side * number / stripes, side - 4, side / stripes, color(number)))
                parts.append(rectangle(x + 2, y, side - 4, side, "none", f' stroke="{GREY}"'))
        left += len(table[0]) * side + 28
    return svg(6 + max(len(table) for table in tables) * (side + 6), parts)


def schedule(program, command, states):
    told = subprocess.run([program, "step", *command.split(), "--json", "-"], capture_output=True, text=True, check=True).stdout
    told = json.loads(told[told.index("{"):])
    seen = [told["start"]] + [step["ranks"] for step in told["steps"]]
    return cells([[rank["chunks"] for rank in seen[state]] for state in states])


def curves(lines, dots):
    points = [point for line in lines for point in line] + dots
    right, top = max(x for x, _ in points), max(y for _, y in points)
    place = lambda x, y: (30 + (WIDTH - 60) * x / right, 250 - 230 * y / top)
    parts = [f'<path d="M30 10 V250 H{WIDTH - 20}" fill="none" stroke="{GREY}" stroke-width="2"/>']
    for number, line in enumerate(lines):
        path = " L".join("{:.1f} {:.1f}".format(*place(x, y)) for x, y in line)
        parts.append(f'<path d="M{path}" fill="none" stroke="{color(number)}" stroke-width="3"/>')
    parts += ['<circle cx="{:.1f}" cy="{:.1f}" r="5" fill="{}"/>'.format(*place(x, y), GREY) for x, y in dots]
    return svg(262, parts)


def drawing(figure, program):
    if "schedule" in figure:
        return schedule(program, figure["schedule"], figure["states"])
    if "curves" in figure:
        return curves(figure["curves"], figure.get("dots", []))
    return lanes(figure["lanes"]) if "lanes" in figure else cells(figure["cells"])


def main():
    check, (program, *numbers) = "--check" in sys.argv, [each for each in sys.argv[1:] if each != "--check"]
    stale = 0
    for source in sorted(ROOT.glob("exercises/[0-9]*/figure.json")):
        if numbers and source.parent.name.split("-")[0] not in numbers:
            continue
        text, target = drawing(json.loads(source.read_text()), program), source.with_name("figure.svg")
        if not check:
            target.write_text(text)
        elif not target.exists() or target.read_text() != text:
            print(f"{target.relative_to(ROOT)} is not what exercises/tool/figures.py draws: draw it again")
            stale += 1
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
