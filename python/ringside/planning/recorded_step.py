"""Steps as traces: what a rank did when. They come from a file of `ringside train --trace` or from
a simulation, and are compared, or simulated again with another schedule or network."""

import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from ringside.planning.json_fields import NOT_NEGATIVE, JsonFields, read_json_file, require
from ringside.planning.stage_load import MeasuredStage

# The class of the palette of each phase; others are "other".
PHASES = {
    "forward": "forward",
    "backward": "backward",
    "backward input": "backward",
    "backward weight": "weight",
    "optimizer": "optimizer",
    "clip": "optimizer",
}


@dataclass
class Span:
    """`kind` is "phase", "wait", "call" or "op". Times are in seconds since the earliest start on
    any rank."""

    kind: str
    name: str
    about: str
    start: float
    end: float
    size: int = 0  # bytes of a call
    queued: Optional[float] = None  # when a call was queued

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def track(self) -> str:
        return "communication" if self.kind == "call" else "compute"

    @property
    def is_step(self) -> bool:
        """Whether it is the phase that a whole training step is."""
        return self.kind == "phase" and self.name.startswith("step ")

    @property
    def belongs_to(self) -> str:
        """As a class of the palette."""
        if self.kind in ("call", "wait"):
            return self.kind
        return PHASES.get(self.name, "other") if self.kind == "phase" else "other"

    @property
    def part(self) -> str:
        """The part of a step that it belongs to."""
        if self.is_step:
            return "step"
        names = {"weight": "backward", "optimizer": "update", "wait": "waits"}
        return names.get(self.belongs_to, self.belongs_to)


@dataclass
class Step:
    """A step of a call on the rank that receives: who sent, when it left and when it had arrived."""

    number: int
    sender: int
    sent: float
    arrived: float
    size: int  # bytes


@dataclass
class RankTrace:
    """`coordinates` are those in a mesh, "pp=1,dp=0"; empty if all ranks are one group."""

    rank: int
    coordinates: str = ""
    spans: List[Span] = field(default_factory=list)
    steps: List[Step] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"rank {self.rank}" + (f" ({self.coordinates})" if self.coordinates else "")

    def sort(self) -> None:
        """By start; of two with the same start, the longer first."""
        self.spans.sort(key=lambda span: (span.start, -span.end))

    def within(self, begin: float, end: float) -> List[Span]:
        """The spans that begin and end within a part of the trace, to the rounding of a file."""
        return [
            span for span in self.spans if span.start >= begin - 1e-9 and span.end <= end + 1e-9
        ]

    def busy_seconds(self, spans: Iterable[Span]) -> List[float]:
        """Of each, the seconds in which its rank does not wait."""
        waits = sorted((span.start, span.end) for span in self.spans if span.kind == "wait")
        longest = max((end - start for start, end in waits), default=0.0)
        busy = []
        for span in spans:
            seconds, i = span.seconds, bisect_left(waits, (span.start - longest - 1e-9,))
            while i < len(waits) and waits[i][0] < span.end:
                seconds -= max(0.0, min(span.end, waits[i][1]) - max(span.start, waits[i][0]))
                i += 1
            busy.append(seconds)
        return busy


# Files.


def times_of(event: JsonFields) -> Tuple[float, float]:
    start = event.number("ts", NOT_NEGATIVE) * 1e-6
    return start, start + event.number("dur", NOT_NEGATIVE) * 1e-6


def span_of(event: JsonFields) -> Span:
    kind, name = event.text("cat"), event.text("name")
    args = event.object("args") if event.has("args") else JsonFields({}, "")
    about, (start, end) = args.text("data", ""), times_of(event)
    if kind != "call":
        return Span(kind if kind in ("wait", "phase") else "op", name, about, start, end)
    size = int(args.number("bytes", NOT_NEGATIVE, 0))
    queued = args.number("queued_us", NOT_NEGATIVE, start * 1e6) * 1e-6
    return Span(kind, name, about, start, end, size, queued)


def step_of(event: JsonFields) -> Step:
    """What the receiver got in a step of a call: "all_reduce step 3"."""
    number, (_, arrived) = re.search(r"\d+$", event.text("name")), times_of(event)
    size = int(event.object("args").number("bytes", NOT_NEGATIVE))
    return Step(int(number[0]) if number else 0, -1, 0.0, arrived, size)


def read_traces(path: str) -> List[RankTrace]:
    """A trace file of `ringside train --trace`. The error has the place of what is missing."""
    ranks: Dict[int, RankTrace] = {}
    received: Optional[Tuple[RankTrace, Step]] = None  # until the next event says who sent it when

    def rank_of(event: JsonFields) -> RankTrace:
        rank = int(event.number("pid", NOT_NEGATIVE))
        return ranks.setdefault(rank, RankTrace(rank))

    for event in JsonFields(read_json_file(path), f"{path}: ").list("traceEvents"):
        phase = event.text("ph")
        if phase == "M" and event.text("name", "") == "process_name":
            inside = re.search(r"\(([^)]*)", event.object("args").text("name"))
            rank_of(event).coordinates = inside[1] if inside else ""
        if phase == "s" and received:
            trace, step = received
            step.sender, step.sent = rank_of(event).rank, event.number("ts", NOT_NEGATIVE) * 1e-6
            trace.steps.append(step)
            received = None
        if phase == "X" and event.text("cat") == "step":
            step = step_of(event)
            received = rank_of(event), step
        elif phase == "X":
            span = span_of(event)
            rank_of(event).spans.append(span)
    return [ranks[rank] for rank in sorted(ranks)]


def recorded_steps(ranks: List[RankTrace]) -> Dict[str, Tuple[float, float]]:
    """The training steps of a trace ("step 3"), each from the first rank's begin to the last rank's
    end."""
    windows: Dict[str, Tuple[float, float]] = {}
    for trace in ranks:
        for span in trace.spans:
            if span.is_step:
                begin, end = windows.get(span.name, (span.start, span.end))
                windows[span.name] = min(begin, span.start), max(end, span.end)
    return windows


def chrome_trace(ranks: List[RankTrace]) -> Dict[str, Any]:
    """In Chrome's JSON object format, with times in microseconds: one process per rank, one thread
    per track. Perfetto (ui.perfetto.dev) and chrome://tracing open it."""
    events: List[Dict[str, Any]] = []
    tracks = {"compute": 0, "communication": 1}
    for trace in ranks:

        def about(what: str, track: int, **args: Any) -> None:
            place = {"pid": trace.rank, "tid": track, "ts": 0.0}
            events.append({"ph": "M", "name": what, **place, "args": args})

        about("process_name", 0, name=trace.name)
        about("process_sort_index", 0, sort_index=trace.rank)
        for name, track in tracks.items():
            about("thread_name", track, name=name)
            about("thread_sort_index", track, sort_index=track)
        for span in trace.spans:
            event: Dict[str, Any] = {"ph": "X", "name": span.name}
            event.update(pid=trace.rank, tid=tracks[span.track], ts=span.start * 1e6)
            event.update(cat=span.kind, dur=span.seconds * 1e6)
            args: Dict[str, Any] = {"data": span.about} if span.about else {}
            if span.kind == "call":
                args.update(bytes=span.size, queued_us=span.start * 1e6)
            events.append({**event, "args": args} if args else event)
    return {"displayTimeUnit": "ms", "traceEvents": events}


# What a trace says of a step.


def step_parts(ranks: List[RankTrace]) -> Dict[str, float]:
    """Seconds of one step: the mean over ranks and recorded steps of "step", "forward", "backward",
    "update" and "waits" (for communication, wherever)."""
    parts = dict.fromkeys(("step", "forward", "backward", "update", "waits"), 0.0)
    steps = 0
    for trace in ranks:
        for step in trace.spans:
            if step.is_step:
                steps += 1
                for span in trace.within(step.start, step.end):
                    parts[span.part] = parts.get(span.part, 0.0) + span.seconds
    require(steps > 0, "the trace has no whole step: it must be one of `ringside train --trace`")
    return {part: seconds / steps for part, seconds in parts.items()}


def stages_of_trace(ranks: List[RankTrace]) -> List[MeasuredStage]:
    """The computations of each stage: means over ranks, micro-batches and steps, without the waits
    within them. A run without a pipeline has one stage."""
    seen: Dict[Tuple[int, str], List[float]] = defaultdict(list)
    for trace in ranks:
        for key, seconds in computations_of(trace):
            seen[key].append(seconds)

    def mean(stage: int, name: str) -> float:
        seconds = seen.get((stage, name), [0.0])
        return sum(seconds) / len(seconds)

    ending = "must be one of `ringside train --trace`"
    numbers = sorted({stage for stage, _ in seen})
    require(numbers, f"the trace shows no forward: it {ending}")
    measured: List[MeasuredStage] = []
    for at, number in enumerate(numbers):
        require(
            number == at,
            f"the trace shows stage {number} but not stage {at}: it must be one of all ranks",
        )
        forward, weight = mean(number, "forward"), mean(number, "backward weight")
        backward = mean(number, "backward") + mean(number, "backward input") + weight
        for name, seconds in (("forward", forward), ("backward", backward)):
            require(seconds > 0, f"the trace shows no {name} of stage {number}: it {ending}")
        measured.append(MeasuredStage(forward, backward, weight, mean(number, "update")))
    return measured


def computations_of(trace: RankTrace) -> Iterator[Tuple[Tuple[int, str], float]]:
    """The seconds of each (stage, phase) that one rank shows, one after the other. The update is
    that of all its stages; each gets an equal part."""
    here: Set[int] = set()
    update, steps = 0.0, 0
    shown = [span for span in trace.spans if span.part in ("step", "update", "forward", "backward")]
    for span, busy in zip(shown, trace.busy_seconds(shown)):
        if span.part == "step":
            steps += 1
        elif span.part == "update":
            update += busy
        else:  # of an action, "2B3"; in a run without a pipeline there is no text, and stage 0
            digits = re.match(r"\d+", span.about)
            stage = int(digits[0]) if digits else 0
            here.add(stage)
            yield (stage, span.name), busy
    for stage in here:
        yield (stage, "update"), update / max(1, steps) / len(here)
