"""The replicas of a plan: durations of their stages on the network, and which are alike."""

from typing import Dict, List, Optional, Sequence, Tuple

from ringside.planning.longest_path import Replica, StageTimes, UnitCalls
from ringside.planning.machine import Machine
from ringside.planning.network import MeshRanks, Network, RankGroup
from ringside.planning.plan import Plan
from ringside.planning.stage_load import Calls, PlanLoad
from ringside.planning.stragglers import Stragglers

Shape = Tuple[int, ...]  # the levels of the groups of a rank


class Replicas:
    """Computes the durations of one replica after the other. `rank_of[s]` is the pipeline rank of
    stage s."""

    def __init__(self, plan: Plan, load: PlanLoad, rank_of: Sequence[int], machine: Machine):
        self.load, self.rank_of, self.overlap = load, rank_of, machine.overlap
        self.network, self.mesh = Network(machine), MeshRanks(plan.mesh)
        self.count, self.pipeline_ranks = plan.mesh.data_ranks(), plan.mesh.size("pp")
        self.state_axis = plan.state_axis
        self.one_axis = sum(plan.mesh.size(axis) > 1 for axis in ("dp", "fsdp", "ep")) <= 1
        # Of the units, and [data][pipeline rank] the shapes that times_of() depends on.
        self.units = [
            [self.mesh.unit(rank, data) for rank in range(self.pipeline_ranks)]
            for data in range(self.count)
        ]
        self.shapes = [
            tuple(self._shape(rank, data) for rank in range(self.pipeline_ranks))
            for data in range(self.count)
        ]
        self.silent: Optional[str] = None  # an axis whose communication takes no time
        self._known: Dict[Tuple[Optional[str], Tuple[Shape, ...]], Tuple[StageTimes, ...]] = {}

    def make(
        self, stragglers: Stragglers, fold: bool, silent: Optional[str] = None
    ) -> List[Replica]:
        """All replicas, or with `fold` one of those that nothing distinguishes: the same durations
        and the same slow ranks. With two axes that divide the batch it also matters with whom a
        replica communicates, so then only all or none are folded."""
        self.silent = silent
        everyone = [self._replica(data) for data in range(self.count)]
        if not fold or stragglers.jitter > 0:
            return everyone
        folded: Dict[Tuple[Tuple[StageTimes, ...], Tuple[float, ...]], Replica] = {}
        for replica in everyone:
            key = (replica.stages, slowness_of(replica, stragglers))
            known = folded.setdefault(key, replica)
            if known is not replica:
                known.count += 1
        if self.one_axis or len(folded) == 1:
            return list(folded.values())
        for replica in everyone:
            replica.count = 1
        return everyone

    def _replica(self, data: int) -> Replica:
        shards = self.mesh.group(self.state_axis, True, 0, data).first
        first = self.mesh.first_of_experts(data)
        if self.load.has_shards:
            first = self.mesh.group(self.state_axis, True, 0, first).first
        return Replica(self._stages(data), self.units[data], 1, shards, first)

    def _shape(self, rank: int, data: int) -> Shape:
        mesh, network = self.mesh, self.network
        here = [
            mesh.along("tp", rank, data),
            mesh.along("cp", rank, data),
            mesh.along("ep", rank, data),
            mesh.group(self.state_axis, True, rank, data),
        ]
        others = {
            self.rank_of[stage + way]
            for stage, holder in enumerate(self.rank_of)
            for way in (-1, 1)
            if holder == rank and 0 <= stage + way < len(self.rank_of)
        }
        here.append(here[1]._replace(count=2))  # the messages of a ring along cp
        a = mesh.rank(rank, data)
        for b in (mesh.rank(other, data) for other in sorted(others) if other != rank):
            here.append(RankGroup(min(a, b), 2, abs(a - b)))
        return tuple(network.level_of(group) for group in here)

    def _stages(self, data: int) -> Tuple[StageTimes, ...]:
        """Replicas of the same shape share them."""
        key = (self.silent, self.shapes[data])
        if key not in self._known:
            self._known[key] = tuple(
                self._times_of(stage, data) for stage in range(len(self.load.stages))
            )
        return self._known[key]

    def _times_of(self, stage: int, data: int) -> StageTimes:
        load, rank, mesh = self.load.stages[stage], self.rank_of[stage], self.mesh
        tensor, experts = mesh.along("tp", rank, data), mesh.along("ep", rank, data)
        context, state = mesh.along("cp", rank, data), self.state_axis
        shards = mesh.group(state, True, rank, data)

        def waited(
            tensor_calls: List[Calls],
            context_calls: List[Calls],
            attention: float,
            expert_calls: List[Calls],
        ) -> float:
            seconds = 0.0
            for calls in tensor_calls:
                seconds += self._seconds(calls, "tp", tensor)
            seconds += self._context_seconds(context_calls, attention, context)
            for calls in expert_calls:
                seconds += self._seconds(calls, "ep", experts)
            return seconds

        buckets = 0 if self.silent == state else int(load.reduce.count)
        return StageTimes(
            load.forward,
            load.input,
            load.weight,
            waited(
                load.tensor_forward,
                load.context_forward,
                load.attention_forward,
                load.expert_forward,
            ),
            waited(
                load.tensor_backward,
                load.context_backward,
                load.attention_backward,
                load.expert_backward,
            ),
            self._units(load.gather_forward, shards),
            self._units(load.gather_backward, shards),
            self._units(load.scatter, shards),
            load.blocks,
            self._message_seconds(stage, stage + 1, data),
            self._message_seconds(stage, stage - 1, data),
            buckets,
            self._seconds(load.reduce, state, shards) / buckets if buckets > 0 else 0.0,
            load.reduces_each,
        )

    def _seconds(self, calls: Calls, axis: str, group: RankGroup) -> float:
        if calls.count == 0 or self.silent == axis:
            return 0.0
        return calls.count * self.network.collective_seconds(calls.collective, group, calls.size)

    def _context_seconds(self, all_calls: List[Calls], attention: float, group: RankGroup) -> float:
        """What `attention` seconds of computing do not hide of a ring's messages; or all of
        collectives."""
        if self.silent == "cp":
            return 0.0
        waited = passed_on = 0.0
        for calls in all_calls:
            if calls.collective == "point_to_point":
                passed_on += calls.count * self.network.message_seconds(
                    group.first, group.first + group.stride, calls.size
                )
            else:
                waited += calls.count * self.network.collective_seconds(
                    calls.collective, group, calls.size
                )
        return waited + passed_on - min(self.overlap * passed_on, attention)

    def _units(self, calls: Calls, group: RankGroup) -> UnitCalls:
        if calls.count == 0:
            return UnitCalls()
        seconds = self._seconds(calls, self.state_axis, group) / calls.count
        return UnitCalls(calls.count, seconds, calls.hidden)

    def _message_seconds(self, stage: int, other: int, data: int) -> float:
        if not 0 <= other < len(self.rank_of) or self.silent == "pp":
            return 0.0
        here, there = self.rank_of[stage], self.rank_of[other]
        if here == there:
            return 0.0
        return self.network.message_seconds(
            self.mesh.rank(here, data), self.mesh.rank(there, data), self.load.message_bytes
        )


def slowness_of(replica: Replica, stragglers: Stragglers) -> Tuple[float, ...]:
    """The factors of a replica's ranks, empty if all are 1."""
    if not stragglers.slow:
        return ()
    factors = tuple(
        stragglers.factor(unit.first + i * unit.stride, 0)
        for unit in replica.units
        for i in range(unit.count)
    )
    return factors if any(factor != 1 for factor in factors) else ()
