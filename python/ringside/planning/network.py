"""Which rank stands at which place of a mesh, and how long a message or a collective takes between
given ranks of a machine, if nobody else uses the network.

    pp=2,dp=2,tp=2     rank(pp 1, data 0, tp 1) = 5

The axes that divide the batch are also counted as one: data index = (dp * (size of fsdp) + fsdp) *
(size of ep) + ep. A REPLICA is all ranks of one data index: together they hold the model once, but
of its experts those of one rank of ep.
"""

from typing import Dict, NamedTuple, Tuple

from ringside.library import RingsideError
from ringside.planning.collective_time import collective_seconds
from ringside.planning.machine import Level, Machine
from ringside.planning.mesh import AXES, Mesh


class RankGroup(NamedTuple):
    """The ranks first, first + stride, ..., `count` of them: a group along one axis."""

    first: int = 0
    count: int = 1
    stride: int = 1

    @property
    def last(self) -> int:
        return self.first + (self.count - 1) * self.stride


class MeshRanks:
    def __init__(self, mesh: Mesh):
        self._extents: Dict[str, Tuple[int, int]] = {
            axis: (mesh.size(axis), mesh.stride(axis)) if mesh.size(axis) > 1 else (1, 0)
            for axis in AXES
        }

    def rank(self, pp: int, data: int) -> int:
        """The rank of context index 0 and tensor index 0; unit() has the others."""
        of = self._extents
        (fsdp, fsdp_stride), (ep, ep_stride) = of["fsdp"], of["ep"]
        both = data // ep
        return (
            pp * of["pp"][1]
            + both // fsdp * of["dp"][1]
            + both % fsdp * fsdp_stride
            + data % ep * ep_stride
        )

    def first_of_experts(self, data: int) -> int:
        """The data index of the first of those that exchange tokens for their experts."""
        return data - data % self._extents["ep"][0]

    def unit(self, pp: int, data: int) -> RankGroup:
        """Those of one pipeline rank and replica, along cp and tp. The axis tp is inside of cp."""
        (cp, cp_stride), (tp, tp_stride) = self._extents["cp"], self._extents["tp"]
        return RankGroup(self.rank(pp, data), cp * tp, tp_stride if tp > 1 else cp_stride)

    def along(self, axis: str, pp: int, data: int) -> RankGroup:
        """Those that differ from rank(pp, data) along `axis` only."""
        size, stride = self._extents[axis]
        member = self.rank(pp, data)
        return RankGroup(
            member - (member // stride % size * stride if size > 1 else 0), size, stride
        )

    def group(self, axis: str, is_state: bool, pp: int, data: int) -> RankGroup:
        """Those that make the calls along an axis. Those of the state's axis shard it, or reduce
        gradients, also along cp, which is inside of it and whose ranks hold the same parameters.
        With pp in between, the stride is a mean."""
        group, cp = self.along(axis, pp, data), self._extents["cp"][0]
        if not is_state or axis == "cp" or cp == 1:
            return group
        return RankGroup(group.first, group.count * cp, group.stride // cp)


class Network:
    """A group of ranks communicates over the innermost level that joins all of them; its slowest
    link is part of every step of a ring. So the time depends only on the shape of a group, and each
    shape is computed once."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self._known: Dict[Tuple[str, int, int, int, float], float] = {}

    def level_of(self, group: RankGroup) -> int:
        """The index of the innermost level one of whose groups holds all these ranks."""
        for i, level in enumerate(self.machine.levels):
            if group.first // level.group == group.last // level.group:
                return i
        raise RingsideError(
            f"ranks {group.first} and {group.last} are in different groups of "
            f"{self.machine.levels[-1].name}, the widest level of {self.machine.name}"
        )

    def level_along(self, group: RankGroup) -> Level:
        """That level as the group sees it, with the bandwidth along its rails."""
        return self.machine.level_along(self.level_of(group), group.stride)

    def level_of_ring(self, group: RankGroup) -> Level:
        """What a ring of the group makes of the levels up to that one."""
        return self.machine.level_of_ring(self.level_of(group), group.count, group.stride)

    def message_seconds(self, source: int, to: int, size: float) -> float:
        """From the send until the message of `size` bytes has arrived."""
        level = self.level_along(RankGroup(min(source, to), 2, abs(source - to)))
        return level.latency + size / level.rate()

    def collective_seconds(self, collective: str, group: RankGroup, size: float) -> float:
        """An all_reduce, all_gather, reduce_scatter or all_to_all of a buffer of `size` bytes
        (whole, on all ranks together). 0 for a group of one."""
        if group.count < 2:
            return 0.0
        key = (collective, group.count, self.level_of(group), group.stride, size)
        if key not in self._known:
            self._known[key] = collective_seconds(
                collective, key[2], group.count, group.stride, size, self.machine
            )
        return self._known[key]
