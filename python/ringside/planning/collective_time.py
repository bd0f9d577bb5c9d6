"""How long a collective takes on a machine that is not here, in closed form.

All messages cost what they cost on the innermost network that holds all ranks. Each rank has a card
of its own in each direction, and the network has no contention. A ring or a chain over several
servers has a channel for each rank of a server, so all their cards carry it (level_of_ring() of a
machine). Other algorithms exchange with one partner at a time, over one card.

Up to 64 ranks the schedules of all ranks are walked (collectives/selection/cost_model.hpp): those
of rings and of pairwise exchanges here, others by the program `ringside`. Both agree with the
closed forms where the chunks are equal. Without the program the closed forms answer.
"""

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from ringside.library import RingsideError
from ringside.planning.from_program import figures_of
from ringside.planning.json_fields import require
from ringside.planning.machine import Level, Machine
from ringside.program import find_program

MOST_RANKS_WALKED = 64


class Costs:
    """What the closed forms are made of: n ranks, D bytes, alpha seconds for a message and beta for
    each of its bytes. q is the largest power of two up to n. The ranks beyond it, `folded`, fold
    their buffers into a neighbour's first, and get the result last."""

    def __init__(self, n: int, size: float, level: Level):
        self.n, self.size = n, size
        self.alpha, self.beta = level.latency, 1 / level.rate()
        self.steps = n.bit_length() - 1  # log2(q)
        self.q = 1 << self.steps
        self.folded = n - self.q
        self.rounds = self.steps + (self.folded > 0)  # log2(n), rounded up
        self.block = self.alpha + self.beta * size / n  # seconds of a message of D/n bytes
        self.whole = self.alpha + self.beta * size

    def with_folding(self, seconds: float) -> float:
        """With a whole buffer to the neighbour, and the result back."""
        return seconds + (2 * self.whole if self.folded else 0)


def _blocks(c: Costs) -> float:
    """One after the other: around half a ring, or through one port (Hockney 1994)."""
    return (c.n - 1) * c.block


def _ring(c: Costs) -> float:  # Patarasuk and Yuan 2009, section 3: sums on, and the sums around
    return 2 * _blocks(c)


def _halving_doubling(c: Costs) -> float:
    """Rabenseifner 2004; Thakur et al. 2005, section 4.5. Each step of halving adds half of what
    the step before did; doubling goes the same way back. A folded party stands for two chunks, and
    the first parties are folded: a step of distance d takes as long as that of the first d."""
    distances = [c.q >> i for i in range(1, c.steps + 1)]
    chunks = sum(each + min(each, c.folded) for each in distances)
    return c.with_folding(2 * c.steps * c.alpha + chunks * 2 * c.beta * c.size / c.n)


def _recursive_doubling(c: Costs) -> float:  # Thakur et al. 2005, section 4.5
    return c.with_folding(c.steps * c.whole)


def _pat(c: Costs) -> float:  # Jeaugey 2025: the steps of doubling, the bytes of a ring
    return c.rounds * c.alpha + (c.n - 1) * c.beta * c.size / c.n


def _pairwise(c: Costs) -> float:  # Thakur et al. 2005, section 4.4; in one round a rank is its own
    return (c.n if c.n > 2 else 1) * c.block


def _chain(c: Costs) -> float:  # Chan et al. 2007, section 3: slices follow the first one's hops
    return (c.n - 1) * c.alpha + c.beta * c.size


def _binomial(c: Costs) -> float:  # Thakur et al. 2005, sections 4.2 and 4.6
    return c.rounds * c.whole


CLOSED_FORMS: Dict[str, Dict[str, Callable[[Costs], float]]] = {
    "all_reduce": {
        "ring": _ring,
        "halving_doubling": _halving_doubling,
        "recursive_doubling": _recursive_doubling,
    },
    "all_gather": {"ring": _blocks, "pat": _pat},
    "reduce_scatter": {"ring": _blocks, "pat": _pat},
    "all_to_all": {"pairwise": _pairwise},
    "broadcast": {"chain": _chain, "binomial": _binomial},
    "reduce": {"chain": _chain, "binomial": _binomial},
    "gather": {"linear": _blocks, "binomial": _pat},  # Chan et al. 2007, section 3
    "scatter": {"linear": _blocks, "binomial": _pat},
}


def closed_form(collective: str, algorithm: str, ranks: int, size: float, level: Level) -> float:
    """Seconds of a collective of a whole buffer of `size` bytes."""
    forms = CLOSED_FORMS[collective]
    if algorithm not in forms:
        raise RingsideError(
            f"there is no closed form of the {collective} '{algorithm}', only of "
            f"{', '.join(forms)}: choose one of these, or at most {MOST_RANKS_WALKED} ranks"
        )
    return forms[algorithm](Costs(ranks, size, level))


def in_network(size: float, level: Level) -> float:
    """An all-reduce in the switches of a level that add up: each rank sends its buffer once and
    receives the sum once (Graham et al. 2016, SHARP)."""
    rate = level.bytes_per_second * level.in_network_efficiency
    return 2 * level.latency + level.oversubscription * size / rate


def double_tree(index: int, ranks: int, stride: int, size: float, machine: Machine) -> float:
    """Two binary trees over the servers, each for half of the buffer, in which every server is
    inside of one and a leaf of the other. Slices are taken to be small: the time in which the first
    one goes up and down is that of its hops (Sanders, Speck and Traeff 2009)."""
    rate = machine.level_of_ring(index, ranks, stride).rate()
    return machine.tree_latency(index, ranks, stride) + 2 * size / rate


def hierarchical(collective: str, index: int, ranks: int, size: float, machine: Machine) -> float:
    """Inside whole servers first, then between ranks of one place in their servers, at the same
    time, each over its own card. An all-reduce then ends inside the servers (Ueno and Yokota 2019;
    all-to-all: Hwang et al. 2023, section 3)."""
    k = machine.ranks_on_server(ranks, 1)
    if ranks % k != 0:
        raise RingsideError(
            f"hierarchical takes whole servers of {k}, and {ranks} ranks are none: "
            f"choose a multiple of {k}"
        )
    inside, servers = Costs(k, size, machine.levels[0]), ranks // k
    if collective == "all_to_all":
        return _pairwise(inside) + _pairwise(Costs(servers, size, machine.level_along(index, k)))
    across = Costs(servers, size / k, machine.level_of_ring(index, servers, k))
    return _ring(inside) + _ring(across)


def of_machine(
    collective: str, index: int, ranks: int, stride: int, machine: Machine
) -> Dict[str, Callable[[float], float]]:
    """The algorithms that a machine adds to the catalogue for ranks of level `index`, `stride`
    apart: the seconds of each for a buffer of so many bytes."""
    level = machine.level_along(index, stride)
    added: Dict[str, Callable[[float], float]] = {}
    if collective == "all_reduce" and index > 0:
        added["double_tree"] = lambda size: double_tree(index, ranks, stride, size, machine)
    if collective in ("all_reduce", "all_to_all") and index > 0:
        added["hierarchical"] = lambda size: hierarchical(collective, index, ranks, size, machine)
    if collective == "all_reduce" and level.in_network_efficiency > 0:
        added["in_network"] = lambda size: in_network(size, level)
    return added


# What a walk of the schedules gives: chunks are whole bytes.


def walked_ring(collective: str, ranks: int, size: int, level: Level) -> float:
    """A chunk passes every rank, twice in an all-reduce; the longest chunks are the last."""
    hops = (ranks - 1) * (2 if collective == "all_reduce" else 1)
    return hops * (level.latency + -(-size // ranks) / level.rate())


def walked_pairwise(_: str, ranks: int, size: int, level: Level) -> float:
    """In step s the ranks a and b with a + b = s (modulo n) exchange; each sends its own chunk's
    length. A port carries one message at a time."""
    if ranks == 1:
        return 0.0
    alpha, beta = level.latency, 1 / level.rate()
    busy = [alpha + beta * (size // ranks + (rank < size % ranks)) for rank in range(ranks)]
    sent, received = [0.0] * ranks, [0.0] * ranks
    for step in range(ranks):
        pairs = [(rank, peer) for rank in range(ranks) if (peer := (step - rank) % ranks) != rank]
        for rank, _ in pairs:
            sent[rank] += busy[rank]
        for rank, peer in pairs:
            received[rank] = max(sent[peer], received[rank] + busy[peer], sent[rank])
    return max(*sent, *received)


WALKS = {"ring": walked_ring, "pairwise": walked_pairwise}


@lru_cache(maxsize=4096)
def collective_seconds(
    collective: str, index: int, ranks: int, stride: int, size: float, machine: Machine
) -> float:
    """Seconds of an all_reduce, all_gather, reduce_scatter or all_to_all of a buffer of `size`
    bytes (whole, on all ranks together) on `ranks` ranks of level `index`, `stride` apart: the
    ring, or of an all-reduce double_tree or in_network where that is faster; pairwise for an
    all_to_all."""
    if collective == "all_to_all":
        algorithm, level = "pairwise", machine.level_along(index, stride)
    else:
        algorithm, level = "ring", machine.level_of_ring(index, ranks, stride)
    if ranks > MOST_RANKS_WALKED:
        seconds = [closed_form(collective, algorithm, ranks, size, level)]
    else:
        seconds = [WALKS[algorithm](collective, ranks, round_half_up(size), level)]
    for name, form in of_machine(collective, index, ranks, stride, machine).items():
        if name != "hierarchical":
            seconds.append(form(size))
    return min(seconds)


def round_half_up(value: float) -> int:
    return math.floor(value + 0.5)


def walk(
    collective: str, algorithm: str, ranks: int, sizes: Sequence[int], level: Level
) -> Optional[Tuple[str, List[float]]]:
    """The algorithm's name and the seconds of buffers of these bytes; None where the closed form
    answers: for more ranks than are walked, for a chain, which passes on slices, and without the
    program. It knows all algorithms, and reads those of files."""
    has_form, too_many = algorithm in CLOSED_FORMS[collective], ranks > MOST_RANKS_WALKED
    if has_form and (too_many or algorithm == "chain"):
        return None
    if has_form and algorithm in WALKS:
        return algorithm, [WALKS[algorithm](collective, ranks, size, level) for size in sizes]
    try:
        find_program()
    except RingsideError as error:
        require(
            has_form or too_many,
            f"'{algorithm}' has no closed form, and the program that walks its schedules is "
            f"missing: {error}",
        )
        return None
    words = ["prove", collective, "--algorithm", algorithm]
    words += ["--max-size", str(min(ranks, MOST_RANKS_WALKED))]
    words += ["--bytes", ",".join(f"{size}B" for size in sizes)]
    words += ["--costs", f"{level.latency!r},{1 / level.rate()!r}"]
    rows = figures_of(words)  # or what is wrong with the algorithm
    return None if too_many else (rows[0]["algorithm"], [row["seconds"] for row in rows])


# A collective by itself: `ringside simulate all_reduce`.


@dataclass(frozen=True)
class CollectiveTime:
    """`size` is the whole buffer: in an all_gather and a reduce_scatter that of all ranks."""

    collective: str
    algorithm: str
    ranks: int
    size: int
    seconds: float
    walked: bool  # or computed in closed form

    def algbw(self) -> float:
        """Bytes of the buffer per second."""
        return self.size / self.seconds

    def busbw(self) -> float:
        """The bytes per second that each link of a ring carries: nccl-tests, PERFORMANCE.md."""
        if self.collective in ("broadcast", "reduce"):
            return self.algbw()
        others = (self.ranks - 1) / self.ranks
        return (2 if self.collective == "all_reduce" else 1) * others * self.size / self.seconds


def algorithms_on(collective: str, ranks: int, machine: Machine) -> List[str]:
    """The closed forms, with what the machine adds: a hierarchical all_reduce has to be named,
    because the tree is faster."""
    added = of_machine(collective, machine.level_index_for(ranks), ranks, 1, machine)
    if collective == "all_reduce" or ranks % machine.ranks_on_server(ranks, 1) != 0:
        added.pop("hierarchical", None)
    return [*CLOSED_FORMS[collective], *added]


def collective_times(
    collective: str, algorithm: str, ranks: int, sizes: Sequence[int], machine: Machine
) -> List[CollectiveTime]:
    """The times of buffers of these bytes. `algorithm` is one of the catalogue's, a file's, or one
    that the machine adds."""
    index = machine.level_index_for(ranks)
    level, added = machine.levels[index], of_machine(collective, index, ranks, 1, machine)
    require(
        algorithm != "in_network" or collective != "all_reduce" or algorithm in added,
        f"the switches of {level.name} on {machine.name} do not add up: give the level an "
        "in_network_efficiency in the topology, or leave out in_network",
    )
    form, costs = added.get(algorithm), None
    if not form:
        if algorithm in ("ring", "chain"):
            level = machine.level_of_ring(index, ranks, 1)
        costs = walk(collective, algorithm, ranks, sizes, level)
        form = partial(closed_form, collective, algorithm, ranks, level=level)
    name, seconds = costs or (algorithm, [form(size) for size in sizes])
    walked = costs is not None
    return [
        CollectiveTime(collective, name, ranks, size, each, walked)
        for size, each in zip(sizes, seconds)
    ]
