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

from dataclasses import dataclass
from typing import Callable, Dict, Iterable, List, NamedTuple, Sequence, Tuple

from ringside.planning.network import RankGroup
from ringside.planning.pipeline import COMPUTATIONS, REDUCE, SENDS, Node, other_stage
from ringside.planning.schedules import Action, Schedule

Times = List[float]  # seconds, for each replica
Span = Tuple[Times, Times]  # starts and ends
Factors = Callable[[int, int], Times]  # (rank, action): on the seconds of computing


class Duration(NamedTuple):
    """Seconds of computing, which a slow rank prolongs, and of communication within it that
    computing does not hide. A message is all communication."""

    computing: float = 0.0
    exposed: float = 0.0


class StageTimes(NamedTuple):
    """Durations of one stage of one replica: of its actions for one micro-batch, and of the
    reduction of its gradients over the replicas, in buckets."""

    F: Duration = Duration()
    I: Duration = Duration()  # noqa: E741
    W: Duration = Duration()
    B: Duration = Duration()
    SEND_F: Duration = Duration()
    SEND_B: Duration = Duration()
    buckets: int = 0
    bucket: float = 0.0  # seconds of each
    delay: float = 0.0  # seconds of the reduction that delay the rank
    reduces_each: bool = False  # in every micro-batch, not only in the last


@dataclass
class Replica:
    """Of the data index `data`. `units[rank]` are its tensor-parallel and context-parallel ranks.
    Replicas of one reduce group reduce their gradients together. Those of one shard group gather
    each other's parameters, or compute each other's tokens, so they go in step."""

    data: int
    stages: Tuple[StageTimes, ...]
    units: List[RankGroup]
    count: int = 1  # identical replicas that this one stands for
    reduce_group: int = 0
    shard_group: int = 0


@dataclass
class Timeline:
    """`starts[rank][action]` and `ends` are times; the span of a send or a reduction is that of its
    communication. `exposed[rank][action]` is the communication within a computation that is not
    hidden; `busy[rank]` includes it."""

    starts: List[List[Times]]
    ends: List[List[Times]]
    exposed: List[List[Times]]
    busy: List[Times]
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
    """One pass over the graph of a step, which in_order() gives. `factors(rank, index)` are those
    of the slowest rank of each replica's unit, for action `index` of a pipeline rank."""

    def __init__(
        self,
        lowered: Schedule,
        nodes: Sequence[Node],
        replicas: Sequence[Replica],
        factors: Factors,
    ):
        self.lowered, self.nodes, self.replicas, self.factors = lowered, nodes, replicas, factors
        self.reducing = groups(each.reduce_group for each in replicas)
        sharding = groups(each.shard_group for each in replicas)
        self.sharding = [members for members in sharding if len(members) > 1]
        ranks, zeros = range(lowered.ranks), [0.0] * len(replicas)
        self.now: List[Times] = [zeros for _ in ranks]  # when each rank is free
        # [rank][group] when its last bucket is reduced
        self.network = [[0.0] * len(self.reducing) for _ in ranks]
        self.lane_free: Dict[Tuple[int, int, str], Times] = {}
        self.backward: Dict[int, Span] = {}  # the last computation of each stage
        self.known: Dict[Tuple[int, str], Tuple[Times, Times]] = {}

        def of_actions() -> List[List[Times]]:
            return [[zeros] * len(actions) for actions in lowered.actions]

        self.timeline = Timeline(of_actions(), of_actions(), of_actions(), list(self.now))

    def run(self) -> Timeline:
        timeline = self.timeline
        for node in self.nodes:
            rank, index, action, _ = node
            if action.kind in COMPUTATIONS:
                span = self.compute(node)
            elif action.kind in SENDS:
                span = self.send(rank, action)
            elif action.kind == REDUCE:
                span = self.reduce(rank, action.stage)
            else:  # a receive is only posted
                span = self.now[rank], self.now[rank]
            timeline.starts[rank][index], timeline.ends[rank][index] = span
        timeline.reduced = max(timeline.computed, *map(max, self.now), *map(max, self.network))
        return timeline

    def durations(self, action: Action) -> Tuple[Times, Times]:
        """Seconds of computing, and of communication that it does not hide."""
        key = action.stage, action.kind
        if key not in self.known:
            each = [getattr(replica.stages[action.stage], action.kind) for replica in self.replicas]
            self.known[key] = [one.computing for one in each], [one.exposed for one in each]
        return self.known[key]

    def send(self, rank: int, action: Action) -> Span:
        """A lane carries one message after another; the rank goes on at once."""
        lane = (rank, self.lowered.rank_of[other_stage(action)], action.kind)
        start = later(self.now[rank], self.lane_free.get(lane, self.now[rank]))
        _, seconds = self.durations(action)
        self.lane_free[lane] = end = [a + b for a, b in zip(start, seconds)]
        return start, end

    def compute(self, node: Node) -> Span:
        """Begins when the rank is free and its message has arrived."""
        timeline, (rank, index, action, sent) = self.timeline, node
        start = self.now[rank]
        if sent:
            start = later(start, timeline.ends[sent[0]][sent[1]])
        computing, exposed = self.durations(action)
        factors = self.factors(rank, index)
        seconds = [c * f + e for c, f, e in zip(computing, factors, exposed)]
        end = [a + b for a, b in zip(start, seconds)]
        timeline.busy[rank] = [a + b for a, b in zip(timeline.busy[rank], seconds)]
        timeline.exposed[rank][index] = exposed
        timeline.computed = max(timeline.computed, max(end))
        for members in self.sharding:  # they end together
            last = max([end[i] for i in members])
            for i in members:
                end[i] = last
        self.now[rank], self.backward[action.stage] = end, (start, end)
        stages = [replica.stages[action.stage] for replica in self.replicas]
        is_last = action.micro_batch + 1 == self.lowered.micro_batches
        if stages[0].reduces_each and action.kind in ("B", "W") and not is_last:
            self.reduce(rank, action.stage)
            # It delays computations that follow, so it is no bubble.
            timeline.busy[rank] = [a + b.delay for a, b in zip(timeline.busy[rank], stages)]
        return start, end

    def reduce(self, rank: int, stage: int) -> Span:
        """The gradients of a stage are ready one bucket after the other, at even distances, while
        its last backward runs. A bucket is reduced when all members of a group have it and the
        bucket before is done:

            computing   |      backward       |
            network          |bucket 1||bucket 2||bucket 3|

        As buckets are ready at even distances and take equally long, the last one ends when all
        have been reduced since the first was ready, or when the last was ready and is reduced. What
        cannot overlap delays the rank."""
        (begun, ended), now = self.backward[stage], self.now[rank]
        # New lists: the span that has just ended keeps the old one.
        starts, ends, free = list(now), list(now), list(now)
        for group, members in enumerate(self.reducing):
            times = self.replicas[members[0]].stages[stage]
            n, start = times.buckets, now[members[0]]
            end = start
            if n > 0:
                first = max([begun[i] + (ended[i] - begun[i]) / n for i in members])
                start = max(self.network[rank][group], first)
                last = max([ended[i] for i in members])
                end = max(start + n * times.bucket, last + times.bucket)
                self.network[rank][group] = end
            for i in members:
                starts[i], ends[i], free[i] = start, end, now[i] + times.delay
        self.now[rank] = free
        return starts, ends


def groups(of: Iterable[int]) -> List[List[int]]:
    """The indices of each group, in the order of the groups."""
    members: Dict[int, List[int]] = {}
    for i, group in enumerate(of):
        members.setdefault(group, []).append(i)
    return [members[group] for group in sorted(members)]


def later(a: Times, b: Times) -> Times:
    return [x if x > y else y for x, y in zip(a, b)]
