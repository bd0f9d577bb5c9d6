"""A simulated step in the form of a recorded one: its trace, and its lanes in a page and a file."""

from typing import Any, Dict, List

from ringside.lab.report import Figure
from ringside.lab.tracks import tracks_figure
from ringside.planning.pipeline import (
    COMPUTATIONS,
    RECEIVES,
    REDUCE,
    SENDS,
    message_of,
    other_stage,
)
from ringside.planning.recorded_step import RankTrace, Span
from ringside.planning.simulation import Simulation

PHASES = {"F": "forward", "B": "backward", "I": "backward input", "W": "backward weight"}


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

    last, rounding = 0.0, 1e-12 * s.step  # when the last phase ended
    for i, action in enumerate(s.lowered.actions[rank]):
        start, end = timeline.starts[rank][i][replica], timeline.ends[rank][i][replica]
        if end == start or action.kind in RECEIVES:
            continue
        if action.kind in SENDS:
            what = "activations" if action.kind == "SEND_F" else "gradients"
            add(
                "call",
                "send",
                f"{what} of micro-batch {action.micro_batch} to stage {other_stage(action)}",
                start,
                end,
                int(s.load.message_bytes),
            )
        elif action.kind == REDUCE:
            add("call", "reduce gradients", f"stage {action.stage}", start, end)
        else:
            received = message_of(s.lowered, action, "RECV")
            if received and start > last + rounding:
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


def lanes_figure(s: Simulation) -> Figure:
    """What the ranks do over time: of many ranks the first, the middle and the last, because a page
    with more lanes is not read."""
    every, most = simulated_traces(s), 8
    shown = (
        every
        if len(every) <= most
        else [every[i * (len(every) - 1) // (most - 1)] for i in range(most)]
    )
    return tracks_figure(
        "What the ranks do in a step",
        shown,
        (0.0, s.step),
        f"{len(shown)} of {len(every)} "
        "pipeline ranks of one replica. Communication within a computation is drawn at its end. ",
    )


# The pipeline of the same replica, in a file.


def picture_of_pipeline(s: Simulation, title: str) -> Dict[str, Any]:
    """As svg.py draws it. The micro-batch of each computation is in its box. Forward is blue,
    backward or I orange, W green; a rank's stages are in turn strong and pale."""
    replica, timeline, lowered = slowest_replica(s), s.timeline, s.lowered
    lanes, shortest = [], timeline.computed
    for rank, actions in enumerate(lowered.actions):
        stages, marks = lowered.stages_of(rank), []
        for i, action in enumerate(actions):
            if action.kind not in COMPUTATIONS:
                continue
            start, end = timeline.starts[rank][i][replica], timeline.ends[rank][i][replica]
            style = {"F": "forward", "W": "weight"}.get(action.kind, "backward")
            pale = " second" if stages.index(action.stage) % 2 else ""
            marks.append([style + pale, action.text(), start, end, str(action.micro_batch)])
            if end > start:
                shortest = min(shortest, end - start)
        lanes.append({"name": str(rank), "says": f"rank {rank}", "end": timeline.computed})
        lanes[-1]["marks"] = marks
    # A box has room for its number, up to a width that a page can show.
    length = 12 + 7.5 * len(str(lowered.micro_batches - 1))
    pixels = min(length / shortest * timeline.computed, 2000)
    return {"title": title, "lanes": lanes, "scale": timeline.computed, "pixels": pixels}
