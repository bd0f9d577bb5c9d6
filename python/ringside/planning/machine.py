"""Machine: a device, and the network between many of them, as a JSON file describes both.

    {
      "source": "where the figures come from",
      "estimates": "which of them nobody has published or measured",
      "device": {"peak_tflops": 312, "memory_gb": 80, "memory_gbps": 2039,
                 "matmul_efficiency": 0.72, "memory_efficiency": 0.75, "overlap": 1},
      "levels": [{"name": "NVLink", "group": 8, "gbps": 300, "us": 5, "efficiency": 0.77,
                  "in_network_efficiency": 0.6},
                 {"name": "InfiniBand", "group": 4096, "gbps": 25, "us": 10,
                  "oversubscription": 2}]
    }

Levels go from the inside out. A level joins groups of `group` devices, counted in devices, not in
groups of the level below. gbps is 10^9 bytes per second of one device, in one direction; us is the
latency of one message. Efficiencies are the share of the figure that is reached, at most 1. What
may be left out, and what it is then:

    overlap                 share of communication that can run while the device computes; 1. On a
                            CPU the computing cores also move the bytes: 0
    in_network_efficiency   the switches of this level add up: a rank sends its buffer once, and
                            receives the sum once, at this share of gbps; 0: they do not
    oversubscription        a group of the level below has so many times less bandwidth to the
                            outside than its devices together; 1
    kernel_us               microseconds that each kernel takes beside its work: its launch, and
                            the first and the last wave of its blocks; 0
    rails                   true: devices with the same place in their groups of the level below
                            share switches, a rail. Ranks of one rail reach each other at full
                            rate; what goes from rail to rail is oversubscribed; false
    matmul_efficiency_by_width
                            instead of matmul_efficiency: [{"width": 512, "efficiency": 0.4},
                            {"width": 4096, "efficiency": 0.7}]. The width is the shortest side of
                            the matrices on one device. Between two rows the efficiency is linear
                            in log(width); outside of them it is that of the nearest
"""

import math
import os
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, List, Tuple

from ringside.command_line import did_you_mean
from ringside.library import RingsideError
from ringside.planning.json_fields import (
    AT_LEAST_ONE,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    SHARE_OR_NONE,
    JsonFields,
    data_file,
    read_json_file,
    require,
)

MACHINES = data_file("machines")


@dataclass(frozen=True)
class Level:
    """A network between devices. `group` counts devices; rates are those of one device, in one
    direction."""

    name: str
    group: int = 1
    bytes_per_second: float = 0.0
    latency: float = 0.0  # seconds
    efficiency: float = 1.0
    in_network_efficiency: float = 0.0  # of an all-reduce that switches compute; 0: they do not
    oversubscription: float = 1.0
    rails: bool = False

    def rate(self) -> float:
        """Bytes per second of one device while all devices send at the same time."""
        return self.bytes_per_second * self.efficiency / self.oversubscription


@dataclass(frozen=True, eq=False)
class Machine:
    name: str
    source: str = ""
    estimates: str = ""
    peak: float = 0.0  # FLOP/s of one device, for matrix products in 16 bits
    memory: float = 0.0  # bytes of one device
    memory_bandwidth: float = 0.0  # bytes per second
    matmul_efficiency: float = 1.0
    memory_efficiency: float = 1.0
    # Pairs of width and efficiency, by rising width; may be empty.
    matmul_efficiency_by_width: Tuple[Tuple[float, float], ...] = ()
    kernel_seconds: float = 0.0  # of each kernel, beside its work
    overlap: float = 1.0  # the share of communication that can run while a device computes
    levels: Tuple[Level, ...] = field(default_factory=tuple)

    def level_index_for(self, devices: int) -> int:
        """The innermost level whose groups hold `devices` neighbouring devices."""
        for index, level in enumerate(self.levels):
            if devices <= level.group:
                return index
        widest = self.levels[-1]
        raise RingsideError(
            f"the plan needs {devices} devices, but {self.name} has {widest.group}: its widest "
            f"level is {widest.name}"
        )

    def level_for(self, devices: int) -> Level:
        return self.levels[self.level_index_for(devices)]

    def level_along(self, index: int, stride: int) -> Level:
        """Level `index` as ranks `stride` apart see it: on one rail nothing is oversubscribed."""
        level = self.levels[index]
        on_one_rail = level.rails and stride % self.levels[index - 1].group == 0
        return replace(level, oversubscription=1.0) if on_one_rail else level

    def ranks_on_server(self, count: int, stride: int) -> int:
        """The ranks of a group, `stride` apart, that stand on one server (level 0). Each has a card
        of its own to the levels above."""
        return min(max(self.levels[0].group // stride, 1), count)

    def level_of_ring(self, index: int, count: int, stride: int) -> Level:
        """What a ring of `count` ranks, `stride` apart, makes of the levels up to `index`.

        It is divided into one channel for each rank of a server: a ring that leaves the server by
        the card of that rank, and comes in by the same rail (NCCL's channels). So servers exchange
        at the rate of all these cards, at most at that of the levels inside. The latency is the
        mean of the ring's hops, because each chunk takes them all. A ring leaves an oversubscribed
        group with each channel once, however many of its ranks are there."""
        ring = self.level_along(index, stride)
        if index == 0:
            return ring
        channels = self.ranks_on_server(count, stride)

        def shared(level: Level, i: int) -> Level:
            # Of the k ranks that a ring has in a group of the level below, only as many leave it as
            # there are channels. So the rings of all devices of the group send less than its ports
            # could. With rails each channel stays on its own.
            over = 1.0 if level.rails and channels > 1 else level.oversubscription
            k = min(max(self.levels[i - 1].group // stride, channels), count)
            return replace(
                level,
                bytes_per_second=level.bytes_per_second * channels,
                oversubscription=max(1.0, over * channels / k),
            )

        ring = shared(ring, index)
        latency, hops = 0.0, count  # of all hops, those that leave a group of level i - 1
        for i in range(index + 1):
            level = self.levels[i]
            leaving = 0 if i == index else -(-count * stride // level.group)
            latency += (hops - min(hops, leaving)) * level.latency
            hops = min(hops, leaving)
            if i == index or level.group < 2 * stride:
                continue
            inside = self.level_along(i, stride)
            inside = shared(inside, i) if i > 0 else inside
            if inside.rate() < ring.rate():
                ring = replace(
                    ring,
                    bytes_per_second=inside.bytes_per_second,
                    efficiency=inside.efficiency,
                    oversubscription=inside.oversubscription,
                )
        return replace(ring, latency=latency / count)

    def tree_latency(self, index: int, count: int, stride: int) -> float:
        """Seconds of the hops up and down a double binary tree over the servers of the same group,
        with a chain inside of each. 0 if the group is on one server."""
        if index == 0:
            return 0.0
        inside = self.ranks_on_server(count, stride)
        depth = math.ceil(math.log2(count / inside))
        return 2 * (depth * self.levels[index].latency + (inside - 1) * self.levels[0].latency)

    def matmul_efficiency_at(self, width: float) -> float:
        """The share of the peak that products of matrices reach whose shortest side is `width`."""
        rows = self.matmul_efficiency_by_width
        if not rows:
            return self.matmul_efficiency
        if width <= rows[0][0]:
            return rows[0][1]
        for (below, low), (above, high) in zip(rows, rows[1:]):
            if width <= above:
                return low + math.log(width / below) / math.log(above / below) * (high - low)
        return rows[-1][1]


def _read_level(fields: JsonFields) -> Level:
    in_network = fields.has("in_network_efficiency")
    level = Level(
        fields.text("name"),
        fields.count("group"),
        fields.number("gbps", POSITIVE) * 1e9,
        fields.number("us", NOT_NEGATIVE, 0) * 1e-6,
        fields.number("efficiency", SHARE, 1),
        fields.number("in_network_efficiency", SHARE) if in_network else 0.0,
        fields.number("oversubscription", AT_LEAST_ONE, 1),
        fields.flag("rails", False),
    )
    fields.done()
    return level


def _read_efficiencies(device: JsonFields, place: str) -> Tuple[Tuple[float, float], ...]:
    if not device.has("matmul_efficiency_by_width"):
        return ()
    require(
        not device.has("matmul_efficiency"),
        f"{place}device has both matmul_efficiency and matmul_efficiency_by_width: leave out one",
    )
    rows: List[Tuple[float, float]] = []
    for i, row in enumerate(device.list("matmul_efficiency_by_width")):
        width = row.number("width", POSITIVE)
        efficiency = row.number("efficiency", SHARE, 1)
        row.done()
        before = rows[-1][0] if rows else 0
        require(
            width > before,
            f"{place}device.matmul_efficiency_by_width[{i}].width is "
            f"{width:g}, but widths rise: more than the {before:g} of the row before is "
            "expected",
        )
        rows.append((width, efficiency))
    return tuple(rows)


def read_machine(content: Any, name: str, place: str) -> Machine:
    """The machine that a JSON value describes; `place` begins the errors."""
    fields = JsonFields(content, place)
    source, estimates = fields.text("source", name), fields.text("estimates", "")
    device = fields.object("device")
    values = dict(
        peak=device.number("peak_tflops", POSITIVE) * 1e12,
        memory=device.number("memory_gb", POSITIVE) * 1e9,
        memory_bandwidth=device.number("memory_gbps", POSITIVE) * 1e9,
        matmul_efficiency=device.number("matmul_efficiency", SHARE, 1),
        kernel_seconds=device.number("kernel_us", NOT_NEGATIVE, 0) * 1e-6,
    )
    by_width = _read_efficiencies(device, place)
    values["memory_efficiency"] = device.number("memory_efficiency", SHARE, 1)
    values["overlap"] = device.number("overlap", SHARE_OR_NONE, 1)
    device.done()
    levels = tuple(_read_level(each) for each in fields.list("levels"))
    fields.done()
    innermost = levels[0]
    require(
        innermost.oversubscription == 1,
        f"{place}levels[0].oversubscription is "
        f"{innermost.oversubscription:g}, but the innermost level joins devices, which cannot "
        "be oversubscribed: move it to the level above",
    )
    require(
        not innermost.rails,
        f"{place}levels[0].rails is true, but the innermost level joins "
        "devices, and rails join groups of devices: move it to the level above",
    )
    for i in range(1, len(levels)):
        require(
            levels[i].group > levels[i - 1].group,
            f"{place}levels[{i}].group is "
            f"{levels[i].group}, but levels go from the inside out: more than the "
            f"{levels[i - 1].group} of levels[{i - 1}] is expected",
        )
    return Machine(
        name, source, estimates, matmul_efficiency_by_width=by_width, levels=levels, **values
    )


@cache
def machine_names() -> List[str]:
    """The machines of data/machines/."""
    return [name[:-5] for name in sorted(os.listdir(MACHINES)) if name.endswith(".json")]


def find_machine(name: str) -> Machine:
    """`name` is one of machine_names(), or the path of a JSON file. The error lists the names, or
    says which field of the file is wrong."""
    known = machine_names()
    if name in known:
        path = os.path.join(MACHINES, name + ".json")
        return read_machine(read_json_file(path), name, f"{name}.json: ")
    require(
        os.path.exists(name),
        f"there is no machine or file named '{name}'"
        f"{did_you_mean(name, known)}; machines: {', '.join(known)}; or give the path of a "
        "JSON file",
    )
    return read_machine(read_json_file(name), name, f"{name}: ")
