"""The replicas of a plan: the durations of their stages on the network, and which are alike."""

from dataclasses import replace
from functools import cache
from typing import Dict, List, Optional, Sequence, Tuple

from ringside.planning.longest_path import Duration, Factors, Replica, StageTimes, Times
from ringside.planning.machine import Machine
from ringside.planning.network import MeshRanks, Network, RankGroup, pair
from ringside.planning.pipeline import REDUCE
from ringside.planning.plan import Plan
from ringside.planning.stage_load import Calls, PlanLoad, StageLoad
from ringside.planning.stragglers import Stragglers

# The parts of an action, as Calls.when names them. Gathers and scatters share a whole backward.
PARTS = {"B": ("I", "W"), **{kind: (kind,) for kind in ("F", "I", "W", "SEND_F", "SEND_B")}}


def times_of(
    load: StageLoad, seconds: Sequence[float], overlap: float, reduces_each: bool
) -> StageTimes:
    """The durations of a stage, if each of its calls takes so many `seconds`."""

    def duration(parts: Sequence[str]) -> Duration:
        computing = sum(load.computing.get(part, 0.0) for part in parts)
        block = computing / len(parts) / load.blocks
        exposed = [
            calls.exposed(each, block, overlap)
            for part in parts
            for calls, each in zip(load.calls, seconds)
            if calls.when == part
        ]
        return Duration(computing, sum(exposed))

    buckets, bucket = 0, 0.0
    for calls, each in zip(load.calls, seconds):
        if calls.when == REDUCE:
            buckets, bucket = int(calls.count), each
    return StageTimes(
        **{kind: duration(parts) for kind, parts in PARTS.items()},
        buckets=buckets,
        bucket=bucket,
        delay=(1 - overlap) * bucket * buckets,
        reduces_each=reduces_each,
    )


class Replicas:
    """What the replicas of a plan take; `rank_of[s]` is the pipeline rank of stage s. An axis that
    is `silent` communicates in no time."""

    def __init__(self, plan: Plan, load: PlanLoad, rank_of: Sequence[int], machine: Machine):
        self.plan, self.load, self.rank_of, self.machine = plan, load, rank_of, machine
        self.network, self.mesh = Network(machine), MeshRanks(plan)
        # [replica][stage] the seconds of each of the stage's calls
        stages, replicas = range(len(load.stages)), range(plan.mesh.data_ranks())
        self.seconds = [[self._seconds(stage, data) for stage in stages] for data in replicas]
        self._known: Dict[Tuple[int, Tuple[float, ...]], StageTimes] = {}

    def group_of(self, calls: Calls, stage: int, data: int) -> RankGroup:
        """Those that make these calls of a stage; of messages along pp, both ends."""
        rank = self.rank_of[stage]
        if calls.axis != "pp":
            return self.mesh.group(calls.axis, rank, data)
        other = self.rank_of[stage + (1 if calls.when == "SEND_F" else -1)]
        return pair(self.mesh.rank(rank, data), self.mesh.rank(other, data))

    def _seconds(self, stage: int, data: int) -> List[float]:
        def seconds(calls: Calls) -> float:
            group = self.group_of(calls, stage, data)
            return self.network.seconds(calls.collective, group, calls.size)

        return [seconds(each) for each in self.load.stages[stage].calls]

    def seconds_of(self, stage: int, data: int, silent: Optional[str]) -> Tuple[float, ...]:
        """The same, if an axis is silent."""
        seconds = zip(self.load.stages[stage].calls, self.seconds[data][stage])
        return tuple(0.0 if calls.axis == silent else each for calls, each in seconds)

    def stages(self, data: int, silent: Optional[str] = None) -> Tuple[StageTimes, ...]:
        """Replicas whose calls take equally long share the times of a stage."""
        times: List[StageTimes] = []
        for stage, load in enumerate(self.load.stages):
            key = stage, self.seconds_of(stage, data, silent)
            if key not in self._known:
                self._known[key] = times_of(
                    load, key[1], self.machine.overlap, self.plan.stage == 2
                )
            times.append(self._known[key])
        return tuple(times)

    def make(self, stragglers: Stragglers, fold: bool) -> List[Replica]:
        """All replicas, or with `fold` one of those that nothing distinguishes: the same durations
        and the same slow ranks. With two axes that divide the batch it also matters with whom a
        replica communicates, so then only all or none are folded."""
        every = [self._replica(data) for data in range(self.plan.mesh.data_ranks())]
        if not fold or stragglers.jitter > 0:
            return every
        alike: Dict[object, List[Replica]] = {}
        for each in every:
            slow = [stragglers.factors(unit, 0) for unit in each.units] if stragglers.slow else []
            alike.setdefault((each.stages, *slow), []).append(each)
        axes = sum(self.plan.mesh.size(axis) > 1 for axis in ("dp", "fsdp", "ep"))
        if axes > 1 and len(alike) > 1:
            return every
        return [replace(same[0], count=len(same)) for same in alike.values()]

    def _replica(self, data: int) -> Replica:
        mesh, axis = self.mesh, self.plan.state_axis
        in_step = mesh.first_of_experts(data)
        if self.plan.shards_parameters:
            in_step = mesh.group(axis, 0, in_step).first
        units = [mesh.unit(rank, data) for rank in range(self.plan.mesh.size("pp"))]
        reduced = mesh.group(axis, 0, data).first
        return Replica(data, self.stages(data), units, 1, reduced, in_step)

    def silenced(self, replicas: Sequence[Replica], silent: Optional[str]) -> List[Replica]:
        """The same replicas, if an axis communicates in no time."""
        return [replace(each, stages=self.stages(each.data, silent)) for each in replicas]


def factors_of(replicas: Sequence[Replica], stragglers: Stragglers) -> Factors:
    """Of action `index` of a pipeline rank, for each replica: the factor of the slowest rank of its
    unit."""
    nobody = [1.0] * len(replicas)

    @cache
    def factors(rank: int, index: int) -> Times:
        if not stragglers.any():
            return nobody
        return [max(stragglers.factors(each.units[rank], index)) for each in replicas]

    return factors
