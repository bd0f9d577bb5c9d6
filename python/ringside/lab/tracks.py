"""The tracks of every rank in a report: phases, waits and calls over time.

Zoomed in, the page also shows the ops within phases, and the steps within calls with an arrow from
the sender to the receiver of each. They are too short to be seen in a whole step, so they come as
data, which the page's script draws (page/report.js). As cli/pictures/tracks_figure.hpp.
"""

import json
from bisect import bisect_right
from typing import Any, Dict, List, Tuple

from ringside.lab.report import Figure, Lane, Mark, draw_lanes
from ringside.lab.tables import Column, Table
from ringside.library import RingsideError
from ringside.planning.recorded_step import RankTrace, Span

LEGEND = [
    ("forward", "forward"),
    ("backward", "backward"),
    ("weight", "backward of weights alone (pipelines)"),
    ("optimizer", "clip, optimizer"),
    ("other", "other phases"),
    ("wait", "exposed communication: the rank waits"),
    ("call", "a call in progress"),
]

Window = Tuple[float, float]  # seconds: the spans that begin and end within it are shown


def in_ms(seconds: float) -> str:
    """ "12.34", from 100 ms on "123.4"."""
    return f"{seconds * 1e3:.{2 if seconds < 0.1 else 1}f}"


def describe(span: Span, rank: int, begin: float) -> str:
    text = f"Rank {rank}: {span.name}" + (f" ({span.about})" if span.about else "")
    text += (
        f", {in_ms(span.seconds)} ms, from {in_ms(span.start - begin)} to "
        f"{in_ms(span.end - begin)} ms"
    )
    if span.kind == "call":
        text += f"; {span.size / 1e6:.3g} MB"
    if span.queued is not None and span.start - span.queued > 1e-5:
        text += f", queued for {in_ms(span.start - span.queued)} ms before"
    return text


def parts_within(trace: RankTrace, window: Window) -> List[Span]:
    """The spans of a window, without the step that they are parts of."""
    return [span for span in trace.within(*window) if not span.is_step]


def lane_of(trace: RankTrace, track: str, window: Window) -> Lane:
    """What is seen of a track in a whole step: phases and waits, or calls."""
    begin, end = window
    lane = Lane(
        track,
        f"rank {trace.rank}, {track}",
        1e3 * (end - begin),
        attributes=f' data-rank="{trace.rank}" data-track="{track}"',
    )
    for span in parts_within(trace, window):
        if span.track == track and span.kind != "op":
            named = span.name in ("forward", "backward", "optimizer")
            lane.marks.append(
                Mark(
                    span.belongs_to,
                    describe(span, trace.rank, begin),
                    1e3 * (span.start - begin),
                    1e3 * (span.end - begin),
                    (span.about or span.name) if named else "",
                )
            )
    return lane


def ms_since(begin: float, time: float) -> float:
    """Milliseconds, to a tenth of a microsecond."""
    return round((time - begin) * 1e7) / 1e4


def ops_of(trace: RankTrace, window: Window) -> List[List[Any]]:
    """[name, colour, begin, end (ms)] of each op, in the colour of its phase."""
    ops: List[List[Any]] = []
    colour, phase_ends = "other", 0.0
    for span in parts_within(trace, window):
        if span.kind == "phase":
            colour, phase_ends = span.belongs_to, span.end
        if span.kind == "op":
            ops.append(
                [
                    span.name,
                    colour if span.start < phase_ends else "other",
                    ms_since(window[0], span.start),
                    ms_since(window[0], span.end),
                ]
            )
    return ops


def steps_of(trace: RankTrace, window: Window) -> List[List[Any]]:
    """[step, sender, sent, began, arrived (ms), MB, which call] of each step of a call. It begins
    when the one before has ended, or its call begins."""
    begin, end = window
    calls = sorted(span.start for span in trace.spans if span.kind == "call")
    before = sum(start < begin for start in calls)
    steps: List[List[Any]] = []
    last = 0.0
    for step in sorted(trace.steps, key=lambda each: each.arrived):
        call = bisect_right(calls, step.arrived) - 1
        began = step.arrived if call < 0 else max(last, calls[call])
        last = step.arrived
        if call >= before and step.arrived <= end:
            steps.append(
                [
                    step.number,
                    step.sender,
                    ms_since(begin, step.sent),
                    ms_since(begin, began),
                    ms_since(begin, step.arrived),
                    step.size / 1e6,
                    call - before,
                ]
            )
    return steps


def details_of(traces: List[RankTrace], window: Window) -> Dict[str, Any]:
    """What the page shows when it is zoomed in. Of a mesh, whose calls belong to several groups, it
    shows no steps."""
    is_mesh = any(trace.coordinates for trace in traces)
    return {
        "scale": (window[1] - window[0]) * 1e3,
        "ranks": [
            {
                "rank": trace.rank,
                "ops": ops_of(trace, window),
                "steps": [] if is_mesh else steps_of(trace, window),
            }
            for trace in traces
        ],
    }


def conclusion_of(table: Table, seconds: float) -> str:
    """One sentence: how much of the step was waiting, and for whom."""
    rows = table.rows
    share = 100 * sum(row[2] for row in rows) / (len(rows) * max(seconds, 1e-9))
    if len(rows) == 1:
        return f"{in_ms(seconds)} ms; {share:.0f} % of it was waiting for calls."
    slowest = max(rows, key=lambda row: row[1])
    return (
        f"{share:.0f} % of the step was waiting for other ranks and the network; rank "
        f"{slowest[0]} computed longest, {in_ms(slowest[1])} ms, and the fastest rank "
        f"{in_ms(min(row[1] for row in rows))} ms."
    )


def tracks_figure(title: str, traces: List[RankTrace], window: Window, remark: str = "") -> Figure:
    """Two tracks for each rank, with exposed communication hatched. The caption begins with the
    remark."""
    seconds = window[1] - window[0]
    if not seconds > 0:
        raise RingsideError("there is nothing to draw: no time passed")
    table = Table(
        [
            Column("rank", "rank"),
            Column("computing (ms)", "computing_seconds", in_ms),
            Column("waiting (ms)", "waiting_seconds", in_ms),
            Column("calls", "calls"),
            Column("in calls (ms)", "in_calls_seconds", in_ms),
        ]
    )
    lanes: List[Lane] = []
    for trace in traces:
        spans = parts_within(trace, window)
        calls = [span.seconds for span in spans if span.kind == "call"]
        computing = sum(trace.busy_seconds(span for span in spans if span.kind == "phase"))
        waiting = sum(span.seconds for span in spans if span.kind == "wait")
        table.rows.append([trace.rank, computing, waiting, len(calls), sum(calls)])
        lanes += [lane_of(trace, track, window) for track in ("compute", "communication")]
        lanes[-2].heading = trace.name
    data = json.dumps(details_of(traces, window), separators=(",", ":"), ensure_ascii=False)
    drawing = draw_lanes(lanes, seconds * 1e3, "time since the step began (ms)", LEGEND)
    drawing += f'<script type="application/json" class="tracks-data">{data}</script>\n'
    return Figure(title, drawing, remark + conclusion_of(table, seconds), table)
