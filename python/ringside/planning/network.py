"""Which rank stands at which place of a mesh, and how long a message or a collective takes between
given ranks of a machine, if nobody else uses the network.

    pp=2,dp=2,tp=2     rank(pp 1, data 0, tp 1) = 5

The axes that divide the batch are also counted as one: data index = (dp * (size of fsdp) + fsdp) *
(size of ep) + ep. A REPLICA is all ranks of one data index: together they hold the model once, but
of its experts those of one rank of ep.
"""

from typing import NamedTuple

from ringside.library import RingsideError
from ringside.planning.collective_time import collective_seconds
from ringside.planning.machine import Level, Machine
from ringside.planning.mesh import AXES
from ringside.planning.plan import Plan


class RankGroup(NamedTuple):
    """The ranks first, first + stride, ..., `count` of them: a group along one axis."""

    first: int = 0
    count: int = 1
    stride: int = 1

    @property
    def last(self) -> int:
        return self.first + (self.count - 1) * self.stride

    @property
    def ranks(self) -> range:
        return range(self.first, self.last + 1, self.stride)


def pair(a: int, b: int) -> RankGroup:
    """Two ranks."""
    return RankGroup(min(a, b), 2, abs(a - b))


class MeshRanks:
    """The ranks of a plan's mesh."""

    def __init__(self, plan: Plan):
        self.state_axis = plan.state_axis
        self._size = {axis: plan.mesh.size(axis) for axis in AXES}
        self._stride = {axis: plan.mesh.stride(axis) for axis in AXES}

    def rank(self, pp: int, data: int) -> int:
        """The rank of context index 0 and tensor index 0; unit() has the others."""
        rank = pp * self._stride["pp"]
        for axis in ("ep", "fsdp", "dp"):
            rank += data % self._size[axis] * self._stride[axis]
            data //= self._size[axis]
        return rank

    def first_of_experts(self, data: int) -> int:
        """The data index of the first of those that exchange tokens for their experts."""
        return data - data % self._size["ep"]

    def unit(self, pp: int, data: int) -> RankGroup:
        """Those of one pipeline rank and replica, along cp and tp. The axis tp is inside of cp."""
        inner = "tp" if self._size["tp"] > 1 else "cp"
        count = self._size["cp"] * self._size["tp"]
        return RankGroup(self.rank(pp, data), count, self._stride[inner])

    def group(self, axis: str, pp: int, data: int) -> RankGroup:
        """Those that make the calls along an axis with rank(pp, data): they differ along it only.
        Those of the state's axis shard it, or reduce gradients, also along cp, which is inside of
        it and whose ranks hold the same parameters. With pp in between, the stride is a mean."""
        size, stride, cp = self._size[axis], self._stride[axis], self._size["cp"]
        member = self.rank(pp, data)
        first = member - member // stride % size * stride
        if axis == self.state_axis != "cp":
            size, stride = size * cp, stride // cp
        return RankGroup(first, size, stride)


class Network:
    """A group of ranks communicates over the innermost level that joins all of them; its slowest
    link is part of every step of a ring. So the time depends only on the shape of a group."""

    def __init__(self, machine: Machine):
        self.machine = machine

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

    def seconds(self, collective: str, group: RankGroup, size: float) -> float:
        """An all_reduce, all_gather, reduce_scatter or all_to_all of a buffer of `size` bytes
        (whole, on all ranks together), 0 for a group of one; or a message from the first rank to
        the second one ("point_to_point"), from the send until it has arrived."""
        if group.count < 2:
            return 0.0
        if collective == "point_to_point":
            level = self.level_along(group._replace(count=2))
            return level.latency + size / level.rate()
        index, (_, count, stride) = self.level_of(group), group
        return collective_seconds(collective, index, count, stride, size, self.machine)
