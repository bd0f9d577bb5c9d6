"""The tracks of every rank in a report: phases, waits and calls over time.

Zoomed in, the page also shows the ops within phases, and the steps within calls with an arrow from
the sender to the receiver of each. As cli/pictures/tracks_figure.hpp.
"""

from bisect import bisect_right
from typing import Any, Dict, List, Tuple

from ringside.lab.report import Figure
from ringside.lab.tables import Column, Table
from ringside.library import RingsideError
from ringside.planning.recorded_step import RankTrace, Span

Window = Tuple[float, float]  # seconds: the spans that begin and end within it are shown


def in_ms(seconds: float) -> str:
    """ "12.34", from 100 ms on "123.4"."""
    return f"{seconds * 1e3:.{2 if seconds < 0.1 else 1}f}"


def parts_within(trace: RankTrace, window: Window) -> List[Span]:
    """The spans of a window, without the step that they are parts of."""
    return [span for span in trace.within(*window) if not span.is_step]


def ms_since(begin: float, time: float) -> float:
    """Milliseconds, to a tenth of a microsecond."""
    return round((time - begin) * 1e7) / 1e4


def spans_of(trace: RankTrace, window: Window) -> List[List[Any]]:
    """[kind, name, what about, begin, end (ms)] of each span, and of a call also [MB, ms in the
    queue before]."""
    rows: List[List[Any]] = []
    for span in parts_within(trace, window):
        times = (ms_since(window[0], time) for time in (span.start, span.end))
        rows.append([span.kind, span.name, span.about, *times])
        if span.kind == "call":
            queued = span.start if span.queued is None else span.queued
            rows[-1] += [span.size / 1e6, ms_since(queued, span.start)]
    return rows


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


def drawing_of(traces: List[RankTrace], window: Window) -> Dict[str, Any]:
    """The tracks, as page/report.js draws them. Of a mesh, whose calls belong to several groups,
    there are no steps."""
    is_mesh = any(trace.coordinates for trace in traces)
    milliseconds = (window[1] - window[0]) * 1e3
    return {
        "kind": "tracks",
        "end": milliseconds,
        "scale": milliseconds,
        "ranks": [
            {
                "rank": trace.rank,
                "name": trace.name,
                "spans": spans_of(trace, window),
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
    for trace in traces:
        spans = parts_within(trace, window)
        calls = [span.seconds for span in spans if span.kind == "call"]
        computing = sum(trace.busy_seconds(span for span in spans if span.kind == "phase"))
        waiting = sum(span.seconds for span in spans if span.kind == "wait")
        table.rows.append([trace.rank, computing, waiting, len(calls), sum(calls)])
    return Figure(title, drawing_of(traces, window), remark + conclusion_of(table, seconds), table)
