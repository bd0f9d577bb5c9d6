#!/usr/bin/env python3
"""Draws the pictures of chapters that no command of the program draws: drawings.py NAME writes an SVG.
figures.py says how a chapter names one, and runs it with the program and its Python package found.

    experts    the all-to-all of expert parallelism: what `ringside step experts -n 4` prints
    elastic    four ranks, of which one is lost and replaced
"""
import json
import subprocess
import sys

from ringside.lab.report import part_of_page
from ringside.lab.svg import svg_of


def boxes(x, tops, row, texts):
    """A column of boxes, one for each rank, and below each its text; `tops` has begin and rows of each."""
    for rank, ((top, rows), text) in enumerate(zip(tops, texts)):
        yield f'<rect class="box c{rank}" x="{x}" y="{top}" width="14" height="{rows * row}"/>'
        anchor, at = ("end", x - 8) if x < 200 else ("start", x + 22)
        for line, words in enumerate(text):
            soft = ' class="soft"' if line else ""
            yield f'<text{soft} x="{at}" y="{top + rows * row / 2 - 4 + 16 * line}" text-anchor="{anchor}">{words}</text>'


def experts():
    program = ["ringside", "step", "experts", "-n", "4", "--json", "-"]
    routed = json.loads(subprocess.run(program, check=True, stdout=subprocess.PIPE).stdout)
    ranks, each = routed["ranks"], routed["experts"] // routed["ranks"]
    rows = [[sum(routed["counts"][rank][to * each:(to + 1) * each]) for to in range(ranks)] for rank in range(ranks)]
    row, left, right, gap, top = 5, 130, 520, 22, 44

    def stacked(heights):
        places = []
        for height in heights:
            places.append((places[-1][0] + places[-1][1] * row + gap if places else top, height))
        return places

    sources, targets = stacked([sum(line) for line in rows]), stacked([sum(column) for column in zip(*rows)])
    drawn = [f'<text x="{left - 8}" y="24" text-anchor="end">tokens</text>', f'<text x="{right + 22}" y="24">experts</text>']
    arrived = [0] * ranks
    for rank, line in enumerate(rows):
        sent = 0
        for to, count in enumerate(line):
            begin, end = sources[rank][0] + (sent + count / 2) * row, targets[to][0] + (arrived[to] + count / 2) * row
            middle = (left + right) / 2 + 7
            stays = " stays" if rank == to else ""
            drawn.append(f'<path class="band c{rank}{stays}" stroke-width="{count * row - 1}" '
                         f'd="M{left + 14} {begin}C{middle} {begin} {middle} {end} {right} {end}">'
                         f"<title>rank {rank} has {count} rows for the experts of rank {to}</title></path>")
            sent, arrived[to] = sent + count, arrived[to] + count
    drawn += boxes(left, sources, row, [[f"rank {rank}", f"{sum(line)} rows"] for rank, line in enumerate(rows)])
    drawn += boxes(right, targets, row, [[f"rank {to}: experts {to * each} and {to * each + each - 1}", f"computes {sum(column)} rows"]
                                         for to, column in enumerate(zip(*rows))])
    width, height = 740, max(places[-1][0] + places[-1][1] * row for places in (sources, targets)) + 16
    title = "Four ranks send the rows of their tokens to the ranks that have the experts"
    style = ("text { font: 13px system-ui, sans-serif; fill: var(--ink); } .soft { fill: var(--soft); }\n"
             ".box { fill: currentColor; } .band { fill: none; stroke: currentColor; opacity: 0.55; } .stays { opacity: 0.25; }")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
            f'<title>{title}</title>\n<style>{part_of_page("palette.css")}{style}</style>\n'
            '<rect class="paper" width="100%" height="100%" />\n' + "\n".join(drawn) + "\n</svg>\n")


def elastic():
    """A step lasts 1. Rank 2 is lost in step 51, in which the others wait until they join again."""
    def step(number, begin, style="forward"):
        return [style, f"step {number}", begin, begin + 1, str(number)]

    def joins(begin):
        return ["optimizer", "joins the next generation", begin, begin + 0.9, "joins"]

    stays = [step(50, 0), ["other", "waits in step 51", 1, 1.9, "51"], joins(1.9), step(51, 2.8), step(52, 3.8), step(53, 4.8),
             joins(5.8), step(54, 6.7), step(55, 7.7)]
    lost = [step(50, 0), ["c5", "is killed in step 51", 1, 1.4, "51"], ["call", "starts and makes its model", 2.2, 5.6, "starts, makes its model"],
            joins(5.8), step(54, 6.7), step(55, 7.7)]
    lanes = [{"name": f"rank {rank}", "says": f"rank {rank}", "end": 8.7, "marks": lost if rank == 2 else stays} for rank in range(4)]
    generations = [["c4", "generation 1, 4 ranks", 0, 1.9, "4 ranks"], ["c4", "generation 2, 3 ranks", 1.9, 5.8, "generation 2: 3 ranks"],
                   ["c4", "generation 3, 4 ranks", 5.8, 8.7, "generation 3: 4 ranks"]]
    lanes.append({"name": "group", "says": "generations", "end": 8.7, "marks": generations})
    return svg_of({"title": "Rank 2 is killed in step 51. The other ranks repeat this step and go on. After step 53 a new rank 2 joins.",
                   "scale": 8.7, "pixels": 620, "lanes": lanes})


if __name__ == "__main__":
    print({"experts": experts, "elastic": elastic}[sys.argv[1]](), end="")
