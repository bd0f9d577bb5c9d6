"""A simulated step in the form of a recorded one: its trace, and its lanes in a page and a file."""

import json
from typing import List

from ringside.lab.pictures import lanes_file
from ringside.lab.report import Figure, Lane, Mark, draw_lanes
from ringside.lab.tables import Column, Table
from ringside.planning.pipeline import (COMPUTATIONS, RECEIVES, REDUCE, SENDS, message_of,
                                        other_stage)
from ringside.planning.recorded_step import RankTrace, Span
from ringside.planning.simulation import Simulation

PHASES = {"F": "forward", "B": "backward", "I": "backward input", "W": "backward weight"}
LEGEND = [("forward", "forward"), ("backward", "backward"),
          ("weight", "backward of weights alone (pipelines)"), ("optimizer", "clip, optimizer"),
          ("other", "other phases"), ("wait", "exposed communication: the rank waits"),
          ("call", "a call in progress")]


def in_ms(seconds: float) -> str:
    """"12.34", from 100 ms on "123.4"."""
    return f"{seconds * 1e3:.{2 if seconds < 0.1 else 1}f}"


def slowest_replica(s: Simulation) -> int:
    """The replica whose ranks compute longest."""
    busy = [sum(times) for times in zip(*s.timeline.busy)]
    return busy.index(max(busy))


def simulated_traces(s: Simulation) -> List[RankTrace]:
    """One trace for each pipeline rank: of the replica whose ranks compute longest, first tensor
    rank. Communication within a computation is drawn as a wait at its end."""
    replica = slowest_replica(s)
    return [trace_of(s, replica, rank) for rank in range(s.lowered.ranks)]


def trace_of(s: Simulation, replica: int, rank: int) -> RankTrace:
    first, timeline = s.replicas[replica].units[rank].first, s.timeline
    trace = RankTrace(first, s.plan.mesh.describe(first) if s.plan.mesh.ranks() > 1 else "")

    def add(kind: str, name: str, about: str, start: float, end: float, size: int = 0) -> None:
        trace.spans.append(Span(kind, name, about, start, end, size))

    last = 0.0  # when the last phase ended
    for i, action in enumerate(s.lowered.actions[rank]):
        start, end = timeline.starts[rank][i][replica], timeline.ends[rank][i][replica]
        if end == start or action.kind in RECEIVES:
            continue
        if action.kind in SENDS:
            what = "activations" if action.kind == "SEND_F" else "gradients"
            add("call", "send", f"{what} of micro-batch {action.micro_batch} to stage "
                f"{other_stage(action)}", start, end, int(s.load.message_bytes))
        elif action.kind == REDUCE:
            add("call", "reduce gradients", f"stage {action.stage}", start, end)
        else:
            received = message_of(s.lowered, action, "RECV")
            if received and start > last:
                add("phase", "receive", received.text(), last, start)
                add("wait", "wait for recv", received.text(), last, start)
            waits = timeline.exposed[rank][i][replica]
            add("phase", PHASES[action.kind], action.text(), start, end)
            if waits > 0:
                add("wait", "wait for communication", action.text(), end - waits, end)
            last = end
    reduced = timeline.reduced
    if reduced > last:
        add("phase", "reduce gradients", "", last, reduced)
        add("wait", "wait for all ranks", "", last, reduced)
    add("phase", "optimizer", "", reduced, s.step)
    add("phase", "step 1", "", 0.0, s.step)
    trace.sort()
    return trace


# The tracks of ranks, for a page.

def describe(span: Span, rank: int) -> str:
    text = f"Rank {rank}: {span.name}" + (f" ({span.about})" if span.about else "")
    text += f", {in_ms(span.seconds)} ms, from {in_ms(span.start)} to {in_ms(span.end)} ms"
    return text + (f"; {span.size / 1e6:.3g} MB" if span.kind == "call" else "")


def lane_of(trace: RankTrace, track: str, seconds: float) -> Lane:
    """What is seen of a track in a whole step: phases and waits, or calls."""
    lane = Lane(track, f"rank {trace.rank}, {track}", 1e3 * seconds,
                attributes=f' data-rank="{trace.rank}" data-track="{track}"')
    for span in trace.spans:
        if span.track == track and not span.is_step:
            named = span.name in ("forward", "backward", "optimizer")
            lane.marks.append(Mark(span.belongs_to, describe(span, trace.rank), 1e3 * span.start,
                                   1e3 * span.end, (span.about or span.name) if named else ""))
    return lane


def lanes_figure(s: Simulation) -> Figure:
    """What the ranks do over time: of many ranks the first, the middle and the last, because a page
    with more lanes is not read."""
    every, most = simulated_traces(s), 8
    shown = every if len(every) <= most else [
        every[i * (len(every) - 1) // (most - 1)] for i in range(most)]
    table = Table([Column("rank", "rank"), Column("computing (ms)", "computing_seconds", in_ms),
                   Column("waiting (ms)", "waiting_seconds", in_ms), Column("calls", "calls"),
                   Column("in calls (ms)", "in_calls_seconds", in_ms)])
    lanes: List[Lane] = []
    for trace in shown:
        spans = [span for span in trace.spans if not span.is_step]
        calls = [span.seconds for span in spans if span.kind == "call"]
        computing = sum(trace.busy_seconds(span for span in spans if span.kind == "phase"))
        waiting = sum(span.seconds for span in spans if span.kind == "wait")
        table.rows.append([trace.rank, computing, waiting, len(calls), sum(calls)])
        lanes += [lane_of(trace, track, s.step) for track in ("compute", "communication")]
        lanes[-2].heading = trace.name
    # What the page shows when it is zoomed in; a simulation has no ops and no steps of calls.
    details = {"ranks": [{"ops": [], "rank": trace.rank, "steps": []} for trace in shown],
               "scale": s.step * 1e3}
    drawing = draw_lanes(lanes, s.step * 1e3, "time since the step began (ms)", LEGEND)
    drawing += ('<script type="application/json" class="tracks-data">'
                f"{json.dumps(details, separators=(',', ':'))}</script>\n")
    return Figure("What the ranks do in a step", drawing, f"{len(shown)} of {len(every)} pipeline ranks of "
                  "one replica. Communication within a computation is drawn at its end. "
                  f"{conclusion_of(table, s.step)}", table)


def conclusion_of(table: Table, seconds: float) -> str:
    """One sentence: how much of the step was waiting, and for whom."""
    rows = table.rows
    share = 100 * sum(row[2] for row in rows) / (len(rows) * max(seconds, 1e-9))
    if len(rows) == 1:
        return f"{in_ms(seconds)} ms; {share:.0f} % of it was waiting for calls."
    slowest = max(rows, key=lambda row: row[1])
    return (f"{share:.0f} % of the step was waiting for other ranks and the network; rank "
            f"{slowest[0]} computed longest, {in_ms(slowest[1])} ms, and the fastest rank "
            f"{in_ms(min(row[1] for row in rows))} ms.")


# The pipeline of the same replica, in a file.

def svg_of_pipeline(s: Simulation, title: str) -> str:
    """The micro-batch of each computation is in its box. Forward is blue, backward or I orange, W
    green; a rank's stages are in turn strong and pale."""
    replica, timeline, lowered = slowest_replica(s), s.timeline, s.lowered
    lanes, shortest = [], timeline.computed
    for rank, actions in enumerate(lowered.actions):
        stages = lowered.stages_of(rank)
        lane = Lane(str(rank), f"rank {rank}", timeline.computed)
        for i, action in enumerate(actions):
            if action.kind not in COMPUTATIONS:
                continue
            start, end = timeline.starts[rank][i][replica], timeline.ends[rank][i][replica]
            style = {"F": "forward", "W": "weight"}.get(action.kind, "backward")
            pale = " second" if stages.index(action.stage) % 2 else ""
            lane.marks.append(Mark(style + pale, action.text(), start, end,
                                   str(action.micro_batch)))
            if end > start:
                shortest = min(shortest, end - start)
        lanes.append(lane)
    # A box has room for its number, up to a width that a page can show.
    length = 12 + 7.5 * len(str(lowered.micro_batches - 1))
    pixels = min(length / shortest * timeline.computed, 2000)
    return lanes_file(title, lanes, timeline.computed, pixels)
