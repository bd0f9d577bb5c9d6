"""Mesh: how the ranks of a job are arranged in a grid. The same order as parallel/mesh_shape.hpp.

"dp=2,tp=3"              tp 0    tp 1    tp 2
                dp 0   rank 0  rank 1  rank 2        the last axis varies fastest
                dp 1   rank 3  rank 4  rank 5
"""

import math
import re
from dataclasses import dataclass, field
from typing import Dict, List, Tuple

from ringside.planning.json_fields import require

# What each axis divides, and its meaning; in the order in which tables show them.
AXES: Dict[str, Tuple[str, str]] = {
    "pp": ("layers", "pipeline parallel"),
    "dp": ("batch", "data parallel"),
    "fsdp": ("batch", "data parallel that shards"),
    "cp": ("sequence", "context parallel"),
    "tp": ("matrices", "tensor parallel"),
    "ep": ("experts", "expert parallel"),
}
LARGEST_SIZE = 1_000_000  # of an axis, and of the whole mesh


@dataclass(frozen=True)
class Mesh:
    """`extents` are pairs of an axis and its size, as the user named them: the first varies slowest
    over the ranks. An axis that is not named has size 1."""

    extents: Tuple[Tuple[str, int], ...] = ()
    _sizes: Dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sizes", dict(self.extents))

    def size(self, axis: str) -> int:
        return self._sizes.get(axis, 1)

    def ranks(self) -> int:
        return math.prod(size for _, size in self.extents)

    def data_ranks(self) -> int:
        """Ranks that draw different sequences."""
        return self.size("dp") * self.size("fsdp") * self.size("ep")

    def stride(self, axis: str) -> int:
        """From a rank to the next one along `axis`: the product of the sizes after it."""
        names = [name for name, _ in self.extents]
        if axis not in names:
            return 1
        return math.prod(size for _, size in self.extents[names.index(axis) + 1 :])

    def axes(self) -> List[str]:
        return [name for name, _ in self.extents]

    def coordinate(self, rank: int, axis: str) -> int:
        """Where `rank` stands along `axis`: 0 .. size - 1."""
        return rank // self.stride(axis) % self.size(axis)

    def members(self, rank: int, axis: str) -> List[int]:
        """The ranks that differ from `rank` along `axis` only, itself included."""
        stride = self.stride(axis)
        first = rank - self.coordinate(rank, axis) * stride
        return [first + i * stride for i in range(self.size(axis))]

    def describe(self, rank: int) -> str:
        """ "pp=1,dp=0,tp=1": the coordinates."""
        return ",".join(f"{axis}={self.coordinate(rank, axis)}" for axis, _ in self.extents)

    def text(self) -> str:
        """ "pp=2,dp=2,tp=2", or "one device" without axes."""
        return ",".join(f"{axis}={size}" for axis, size in self.extents) or "one device"


def parse_mesh(text: str, option: str = "--mesh") -> Mesh:
    """Reads "pp=2,dp=2,tp=2"; without text it is one device. The error begins with `option`."""
    extents: Dict[str, int] = {}
    named = [f"{axis} ({meaning})" for axis, (_, meaning) in AXES.items()]
    for part in text.split(",") if text else []:
        axis, equals, digits = part.partition("=")
        require(
            equals,
            f"{option} {text}: expected AXIS=SIZE, got '{part}'; write for example "
            f"{option} pp=2,dp=2,tp=2",
        )
        require(
            axis in AXES,
            f"{option} {text}: there is no axis '{axis}'; the axes are "
            f"{', '.join(named[:-1])} and {named[-1]}",
        )
        require(
            axis not in extents, f"{option} {text}: the axis {axis} is named twice; name it once"
        )
        size = int(digits) if re.fullmatch("[0-9]{1,9}", digits) else 0
        require(
            1 <= size <= LARGEST_SIZE,
            f"{option} {text}: expected a size of {axis} from 1 to {LARGEST_SIZE}, got '{digits}'",
        )
        extents[axis] = size
        require(
            math.prod(extents.values()) <= LARGEST_SIZE,
            f"{option} {text}: a mesh has at most {LARGEST_SIZE} ranks; choose smaller sizes",
        )
    return Mesh(tuple(extents.items()))
