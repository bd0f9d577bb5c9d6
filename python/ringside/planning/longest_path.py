"""When each action of a pipeline schedule starts and ends on every rank of a mesh, if nobody else
uses the network.

An action starts when three things are there: its rank, the message it needs, and the ranks that it
communicates with. So its end is the length of the longest path that leads to it:

    replica 0   rank 0   F0 F1       B0    B1    REDUCE ┐
                           ╲ ╲      ╱     ╱             │ starts when the last replica is ready
                rank 1      F0 B0 F1 B1                 │
    replica 1   rank 0   F0  F1        B0     B1        ┘

A UNIT is the tensor-parallel and context-parallel ranks of one pipeline rank in one replica. They
exchange activations or keys in every block, so they go in step, as fast as the slowest of them.

Nothing here depends on the order of time: in_order() gives an order in which each action comes
after all that it waits for, and one pass computes everything. Each action is computed for all
replicas at once: every list below that is called of a time has a number for each replica.
"""

from dataclasses import dataclass, field
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from ringside.planning.network import RankGroup
from ringside.planning.pipeline import (
    COMPUTATIONS,
    RECEIVES,
    SENDS,
    Action,
    Schedule,
    in_order,
    matching,
    message_of,
    other_stage,
)
from ringside.planning.stragglers import Stragglers

Times = List[float]  # seconds, for each replica


class UnitCalls(NamedTuple):
    """The calls of sharded parameters in one micro-batch, one for each unit of parameters.
    `seconds` are those of each; `hidden` is how many run behind a block."""

    count: float = 0.0
    seconds: float = 0.0
    hidden: float = 0.0

    def exposed(self, block: float, overlap: float) -> float:
        """What computing does not hide of the calls, if a block computes for `block` seconds."""
        return self.count * self.seconds - self.hidden * min(overlap * self.seconds, block)


class StageTimes(NamedTuple):
    """Durations of one stage of one replica, in seconds, for one micro-batch."""

    forward: float = 0.0  # computing; backward is input and weight
    input: float = 0.0
    weight: float = 0.0
    # Calls that nothing hides: tensor-parallel and expert-parallel ones, and of context parallel
    # what attention does not.
    tensor_forward: float = 0.0
    tensor_backward: float = 0.0
    gather_forward: UnitCalls = UnitCalls()  # of sharded parameters
    gather_backward: UnitCalls = UnitCalls()
    scatter: UnitCalls = UnitCalls()
    blocks: float = 1.0  # that share the time of computing
    message_on: float = 0.0  # to the next stage
    message_back: float = 0.0  # to the stage before
    buckets: int = 0  # of gradients, over the replicas
    bucket: float = 0.0  # seconds of each
    reduces_each: bool = False  # in every micro-batch, not only in the last

    def durations(self, kind: str, overlap: float) -> Tuple[float, float]:
        """Seconds of computing, which a slow rank prolongs, and of communication within it that
        computing does not hide."""

        def exposed(computing: float, calls: UnitCalls) -> float:
            return calls.exposed(computing / self.blocks, overlap)

        if kind == "F":
            return self.forward, self.tensor_forward + exposed(self.forward, self.gather_forward)
        if kind == "I":
            return self.input, self.tensor_backward + exposed(self.input, self.gather_backward)
        if kind == "W":
            return self.weight, exposed(self.weight, self.scatter)
        # Gathers and scatters share the time of a whole backward.
        computing = self.input + self.weight
        return computing, (
            self.tensor_backward
            + exposed(computing / 2, self.gather_backward)
            + exposed(computing / 2, self.scatter)
        )

    def not_hidden(self, overlap: float) -> float:
        """Seconds of a reduction that delay the rank."""
        return (1 - overlap) * self.bucket * self.buckets


@dataclass
class Replica:
    """`units[rank]` are its tensor-parallel and context-parallel ranks. Replicas of one reduce
    group reduce their gradients together. Those of one shard group gather each other's parameters,
    or compute each other's tokens, so they go in step."""

    stages: Tuple[StageTimes, ...]
    units: List[RankGroup]
    count: int = 1  # identical replicas that this one stands for
    reduce_group: int = 0
    shard_group: int = 0


@dataclass
class Timeline:
    """`starts[rank][action]` and `ends` are times; the span of a send or a reduction is that of its
    communication, and a receive ends when its message is there. `busy[rank]` includes calls within
    computations."""

    starts: List[List[Times]]
    ends: List[List[Times]]
    busy: List[Times]
    # [rank][action] the exposed communication within a computation.
    exposed: List[List[Times]] = field(default_factory=list)
    computed: float = 0.0  # the last end of a computation: the step of the pipeline formulas
    reduced: float = 0.0  # when all gradients are reduced, too

    def bubble(self, replicas: Sequence[Replica]) -> float:
        """The idle part of all units until `computed`: the bubble of the pipeline formulas."""
        busy = sum(
            seconds * replica.count
            for times in self.busy
            for seconds, replica in zip(times, replicas)
        )
        whole = self.computed * len(self.busy) * sum(replica.count for replica in replicas)
        return 1 - busy / whole if whole > 0 else 0.0


class Walk:
    """One pass over the actions. `factors` keeps those of the stragglers for further walks."""

    def __init__(
        self,
        lowered: Schedule,
        replicas: Sequence[Replica],
        overlap: float,
        stragglers: Stragglers,
        factors: Dict[Tuple[int, int], Optional[Times]],
    ):
        self.lowered, self.replicas, self.overlap = lowered, replicas, overlap
        self.stragglers, self.factors = stragglers, factors
        self.count = len(replicas)
        # Replicas with the same durations are of one kind.
        kinds: Dict[int, int] = {}
        self.kind = [kinds.setdefault(id(each.stages), len(kinds)) for each in replicas]
        self.stages = [replicas[self.kind.index(i)].stages for i in range(len(kinds))]
        self.reducing = groups(each.reduce_group for each in replicas)
        self.sharding = [
            each for each in groups(each.shard_group for each in replicas) if len(each) > 1
        ]
        ranks = len(lowered.actions)
        self.place = {action: i for actions in lowered.actions for i, action in enumerate(actions)}
        self.now: List[Times] = [[0.0] * self.count for _ in range(ranks)]
        self.known: Dict[Tuple[int, str], Tuple[Times, Times, Times]] = {}
        self.lane_free: Dict[Tuple[int, int, str], Times] = {}
        # [rank][group] when its last bucket is reduced
        self.network = [[0.0] * len(self.reducing) for _ in range(ranks)]
        empty: List[Times] = []
        self.timeline = Timeline(
            [[empty] * len(actions) for actions in lowered.actions],
            [[empty] * len(actions) for actions in lowered.actions],
            [[0.0] * self.count for _ in range(ranks)],
            [[empty] * len(actions) for actions in lowered.actions],
        )

    def run(self) -> Timeline:
        lowered, timeline = self.lowered, self.timeline
        for rank, index in in_order(lowered):
            action = lowered.actions[rank][index]
            if action.kind in COMPUTATIONS:
                self.compute(rank, index, action)
            elif action.kind in SENDS:
                self.send(rank, index, action)
            elif action.kind in RECEIVES:
                timeline.starts[rank][index] = timeline.ends[rank][index] = self.now[rank]
            else:
                self.reduce(rank, index, action.stage)
        timeline.reduced = max(timeline.computed, *map(max, self.now), *map(max, self.network))
        return timeline

    def of_kinds(self, values: List[float]) -> Times:
        """A value of each kind, for each replica."""
        if len(values) == 1:
            return values * self.count
        return [values[kind] for kind in self.kind]

    def send(self, rank: int, index: int, action: Action) -> None:
        """A lane carries one message after another; the rank goes on at once."""
        on = action.kind == "SEND_F"
        seconds = self.of_kinds(
            [
                stages[action.stage].message_on if on else stages[action.stage].message_back
                for stages in self.stages
            ]
        )
        lane = (rank, self.lowered.rank_of[other_stage(action)], action.kind)
        start = (
            later(self.now[rank], self.lane_free[lane])
            if lane in self.lane_free
            else (self.now[rank])
        )
        end = [a + b for a, b in zip(start, seconds)]
        self.lane_free[lane] = end
        self.timeline.starts[rank][index], self.timeline.ends[rank][index] = start, end

    def compute(self, rank: int, index: int, action: Action) -> None:
        """Begins when the rank is free and its message has arrived."""
        timeline, start = self.timeline, self.now[rank]
        needed = message_of(self.lowered, action, "RECV")
        if needed:
            sent = matching(needed)
            arrived = timeline.ends[self.lowered.rank_of[sent.stage]][self.place[sent]]
            posted = self.place[needed]
            timeline.ends[rank][posted] = later(timeline.starts[rank][posted], arrived)
            start = later(start, arrived)
        computing, exposed, seconds = self.durations(action.stage, action.kind)
        factors = self.factors_of(rank, index)
        if factors is not None:
            seconds = [c * f + e for c, f, e in zip(computing, factors, exposed)]
        end = [a + b for a, b in zip(start, seconds)]
        timeline.busy[rank] = [a + b for a, b in zip(timeline.busy[rank], seconds)]
        timeline.exposed[rank][index] = exposed
        timeline.computed = max(timeline.computed, max(end))
        for members in self.sharding:  # they end together
            last = max([end[i] for i in members])
            for i in members:
                end[i] = last
        timeline.starts[rank][index] = start
        timeline.ends[rank][index] = self.now[rank] = end
        first = self.stages[0][action.stage]
        is_last_half = action.kind in ("B", "W")
        if (
            first.reduces_each
            and is_last_half
            and (action.micro_batch + 1 < self.lowered.micro_batches)
        ):
            for group, members in enumerate(self.reducing):
                self.reduce_behind(group, rank, index, action.stage)
                # It delays computations that follow, so it is no bubble.
                delay = self.of_group(group, action.stage).not_hidden(self.overlap)
                for i in members:
                    timeline.busy[rank][i] += delay

    def durations(self, stage: int, kind: str) -> Tuple[Times, Times, Times]:
        """Seconds of computing, of communication that it does not hide, and of both."""
        if (stage, kind) not in self.known:
            each = [stages[stage].durations(kind, self.overlap) for stages in self.stages]
            self.known[stage, kind] = (
                self.of_kinds([computing for computing, _ in each]),
                self.of_kinds([exposed for _, exposed in each]),
                self.of_kinds([computing + exposed for computing, exposed in each]),
            )
        return self.known[stage, kind]

    def factors_of(self, rank: int, index: int) -> Optional[Times]:
        if (rank, index) not in self.factors:
            units = [replica.units[rank] for replica in self.replicas]
            self.factors[rank, index] = self.stragglers.slowest(units, index)
        return self.factors[rank, index]

    def of_group(self, group: int, stage: int) -> StageTimes:
        return self.stages[self.kind[self.reducing[group][0]]][stage]

    def reduce(self, rank: int, index: int, stage: int) -> None:
        """The reduction after the last backward of a stage."""
        actions, backward = self.lowered.actions[rank], index - 1
        while actions[backward].kind not in COMPUTATIONS or actions[backward].stage != stage:
            backward -= 1
        starts, ends = [0.0] * self.count, [0.0] * self.count
        for group, members in enumerate(self.reducing):
            start, end = self.reduce_behind(group, rank, backward, stage)
            for i in members:
                starts[i], ends[i] = start, end
        self.timeline.starts[rank][index], self.timeline.ends[rank][index] = starts, ends

    def reduce_behind(
        self, group: int, rank: int, backward: int, stage: int
    ) -> Tuple[float, float]:
        """The gradients of a stage are ready one bucket after the other, at even distances, while
        `backward` runs. A bucket is reduced when all members have it and the bucket before is done:

            computing   |      backward       |
            network          |bucket 1||bucket 2||bucket 3|

        As buckets are ready at even distances and take equally long, the last one ends when all
        have been reduced since the first was ready, or when the last was ready and is reduced. What
        cannot overlap delays the rank."""
        members, times = self.reducing[group], self.of_group(group, stage)
        n, start = times.buckets, self.now[rank][members[0]]
        end = max(start, 0.0)
        if n > 0:
            starts, ends = self.timeline.starts[rank][backward], self.timeline.ends[rank][backward]
            start = max(
                self.network[rank][group],
                max([starts[i] + (ends[i] - starts[i]) / n for i in members]),
            )
            end = max(start + n * times.bucket, max([ends[i] for i in members]) + times.bucket)
            self.network[rank][group] = end
        delay = times.not_hidden(self.overlap)
        if delay > 0:
            # A new list: the span that has just ended keeps the old one.
            now = list(self.now[rank])
            for i in members:
                now[i] += delay
            self.now[rank] = now
        return start, end


def groups(of: Sequence[int]) -> List[List[int]]:
    """The indices of each group, in the order of the groups."""
    members: Dict[int, List[int]] = {}
    for i, group in enumerate(of):
        members.setdefault(group, []).append(i)
    return [members[group] for group in sorted(members)]


def later(a: Times, b: Times) -> Times:
    return [x if x > y else y for x, y in zip(a, b)]
