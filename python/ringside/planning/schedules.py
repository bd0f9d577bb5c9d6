"""Pipeline schedules as data: which computations a rank runs, in which order. The second text of
parallel/pipeline/generators/, which has the drawings; a test compares both, action by action.

Stages are numbered from 0 in the order of the forward pass. An action is F (forward), B (backward),
or its halves: I (the gradient of the stage's input) and W (that of its weights).
"""

from collections import deque
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Callable, Deque, Dict, List, NamedTuple, Tuple

UNLIMITED = 1 << 16  # stages


class Action(NamedTuple):
    """ "2F0": forward of stage 2 for micro-batch 0. `kind` is the letters of a schedule's CSV."""

    kind: str
    stage: int
    micro_batch: int = -1  # -1: none, of REDUCE_GRAD

    def text(self) -> str:
        return f"{self.stage}{self.kind}" + ("" if self.micro_batch < 0 else str(self.micro_batch))


Actions = List[Action]


@dataclass(frozen=True, eq=False)
class Schedule:
    """The actions of ranks. Of one rank alone, those of the others are empty."""

    micro_batches: int
    rank_of: Tuple[int, ...]  # rank_of[s]: the rank that holds stage s
    actions: Tuple[Tuple[Action, ...], ...]  # actions[r]: what rank r does, in order

    @property
    def stages(self) -> int:
        return len(self.rank_of)

    @property
    def ranks(self) -> int:
        return len(self.actions)

    def stages_of(self, rank: int) -> List[int]:
        return [stage for stage, where in enumerate(self.rank_of) if where == rank]


# Where stages and layers are.


def loop_placement(ranks: int, stages_per_rank: int = 1) -> Tuple[int, ...]:
    """Stage s lives on rank s modulo `ranks`."""
    return tuple(range(ranks)) * stages_per_rank


def v_placement(ranks: int, _: int = 2) -> Tuple[int, ...]:
    """Down the ranks and up again: the first and the last stage share a rank."""
    return (*range(ranks), *reversed(range(ranks)))


@cache
def layers_of_stage(layers: int, stages: int, stage: int) -> range:
    """The layers of a stage: floor + remainder. The remainder goes first to the stages in between,
    a layer each, because the first one also has the embedding and the last one the head; then to
    the first. Llama 3 divides its 126 layers over 16 stages so: 7, 8 ... 8, 7 (table 4)."""
    each, more = divmod(layers, stages)
    counts = [
        each + (s <= more if 0 < s < stages - 1 else s == 0 and more > max(0, stages - 2))
        for s in range(stage + 1)
    ]
    return range(sum(counts[:-1]), sum(counts))


# The generators: (ranks p, stages per rank v, micro-batches m, rank) -> actions of the rank.


def gpipe(p: int, v: int, m: int, rank: int) -> Actions:
    """All micro-batches forward, then all backward. Huang et al. 2019, figure 2."""
    return [Action(kind, rank, i) for kind in "FB" for i in range(m)]


def _in_rounds(p: int, v: int, m: int, rank: int, warm_up: int, late: int = -1) -> Actions:
    """Rounds of p micro-batches: these go through the rank's first stage, then through its second,
    and so on; backward in the same way, from the last stage to the first. `warm_up` forwards come
    before the first backward. With `late`, backward is divided, and W runs so many actions late."""

    def nth(kind: str, n: int) -> Action:
        stage = n % (p * v) // p
        return Action(
            kind, (stage if kind == "F" else v - 1 - stage) * p + rank, n // (p * v) * p + n % p
        )

    total, divided = m * v, late >= 0
    warm_up = min(warm_up, total)
    actions = [nth("F", n) for n in range(warm_up)]
    for n in range(total):
        if warm_up + n < total:
            actions.append(nth("F", warm_up + n))
        actions.append(nth("I" if divided else "B", n))
        if divided and n >= late:
            actions.append(nth("W", n - late))
    return actions + [nth("W", n) for n in range(max(0, total - late), total) if divided]


def one_f_one_b(p: int, v: int, m: int, rank: int) -> Actions:
    """Narayanan et al. 2021, section 2.2.1."""
    return _in_rounds(1, 1, m, rank, p - 1 - rank)


def interleaved(p: int, v: int, m: int, rank: int) -> Actions:
    """1F1B with v stages per rank. Narayanan et al. 2021, section 2.2.2."""
    return _in_rounds(p, v, m, rank, (v - 1) * p + 2 * (p - 1 - rank))


def zb_h1(p: int, v: int, m: int, rank: int) -> Actions:
    """1F1B with backward in two parts. Qi et al. 2023 (arXiv:2401.10241), figure 3."""
    return _in_rounds(1, 1, m, rank, p - 1 - rank, rank)


def interleaved_zb(p: int, v: int, m: int, rank: int) -> Actions:
    """The interleaved schedule with backward in two parts."""
    return _in_rounds(p, v, m, rank, (v - 1) * p + p - 1 - rank, rank)


def looped_bfs(p: int, v: int, m: int, rank: int) -> Actions:
    """All micro-batches through one stage of a rank, then the next. Lamy-Poirier 2023."""
    return [Action("F", nth * p + rank, i) for nth in range(v) for i in range(m)] + [
        Action("B", nth * p + rank, i) for nth in reversed(range(v)) for i in range(m)
    ]


def zb_v(p: int, v: int, m: int, rank: int) -> Actions:
    """Two stages placed as a V, backward in two parts. Qi et al. 2024, section 6. The pattern needs
    2 p - 1 micro-batches; with fewer, those that do not exist are left out."""
    planned, down, up = max(m, 2 * p - 1), rank, 2 * p - 1 - rank
    following = {(kind, stage): 0 for kind in "FIW" for stage in (down, up)}
    actions: Actions = []

    def add(kinds: str, stage: int) -> None:
        for kind in kinds:
            actions.append(Action(kind, stage, following[kind, stage]))
            following[kind, stage] += 1

    # Warm-up: forwards down until the first micro-batch comes back up, then both ways in turn.
    for _ in range(2 * (p - rank) - 1):
        add("F", down)
    for _ in range(rank):
        add("F", up), add("F", down)
    # The first gradients come down from the last stage; the way up has to be fed.
    for _ in range(p - rank):
        add("FIW", up)
    # Steady state: all six.
    while following["F", down] < planned or following["F", up] < planned:
        add("FIW" if following["F", down] < planned else "IW", down), add("FIW", up)
    # The end: first the gradients that another rank waits for, then the weights put off.
    for _ in range(rank):
        add("I", down), add("I", up)
    for _ in range(p - rank):
        add("IW", down)
    for stage in (up, down):
        add("W" * (planned - following["W", stage]), stage)
    return [each for each in actions if each.micro_batch < m]


def dualpipe_v(p: int, v: int, m: int, rank: int) -> Actions:
    """Forward of one stage beside backward of the other, on a V. DeepSeek-AI 2024, section 3.2.1;
    the order is that of the eight steps that DeepSeek published. The pattern needs 2 p
    micro-batches; with fewer, those that do not exist are left out."""
    planned, down, up, behind = max(m, 2 * p), rank, 2 * p - 1 - rank, p - 1 - rank
    following = {(kind, stage): 0 for kind in "FB" for stage in (down, up)}
    actions: Actions = []
    put_off: Deque[Action] = deque()  # the W of every I

    def add(kind: str, stage: int, divided: bool = False) -> None:
        micro_batch = following[kind, stage]
        following[kind, stage] += 1
        actions.append(Action("I" if divided else kind, stage, micro_batch))
        if divided:
            put_off.append(Action("W", stage, micro_batch))

    def weight() -> None:
        if put_off:
            actions.append(put_off.popleft())

    # Warm-up: down only, then both ways, then the first gradients.
    for _ in range(2 * behind):
        add("F", down)
    for _ in range(rank + 1):
        add("F", down), add("F", up)
    for _ in range(behind):
        add("B", up, divided=True), weight(), add("F", up)
    # Steady state: forward down beside backward up, forward up beside backward down.
    for _ in range(planned - 2 * p + rank + 1):
        add("F", down), add("B", up), add("F", up), add("B", down)
    for _ in range(behind):
        add("B", up), add("F", up), add("B", down)
    # The end: backward only. Its second half puts off W: the ranks before wait for the gradients.
    for i in range(rank + 1):
        add("B", up, divided=2 * i >= rank + 1), add("B", down, divided=2 * i >= rank)
    for _ in range(behind):
        weight(), add("B", down, divided=True)
    while put_off:
        weight()
    return [each for each in actions if each.micro_batch < m]


@dataclass(frozen=True)
class Generator:
    """How a schedule is made, and how many stages per rank it takes."""

    name: str
    make: Callable[[int, int, int, int], Actions]
    in_flight: str  # passes of a rank between F and B or W
    fewest: int = 1  # stages per rank
    most: int = 1
    default: int = 1
    placement: Callable[[int, int], Tuple[int, ...]] = loop_placement
    whole_rounds: bool = False  # the micro-batches must be a multiple of the ranks


GENERATORS: Dict[str, Generator] = {
    each.name: each
    for each in (
        Generator("gpipe", gpipe, "m"),
        Generator("1f1b", one_f_one_b, "min(m, p-r)"),
        Generator("interleaved", interleaved, "(v+1)p-1-2r", 1, UNLIMITED, 2, whole_rounds=True),
        Generator("looped_bfs", looped_bfs, "vm", 1, UNLIMITED, 2),
        Generator("zb_h1", zb_h1, "min(m, p)"),
        Generator("zb_v", zb_v, "2p", 2, 2, 2, v_placement),
        Generator("interleaved_zb", interleaved_zb, "vp", 1, UNLIMITED, 2, whole_rounds=True),
        Generator("dualpipe_v", dualpipe_v, "2p+1", 2, 2, 2, v_placement),
    )
}


@lru_cache(maxsize=512)
def actions_of(
    name: str, ranks: int, stages_per_rank: int, micro_batches: int, rank: int
) -> Tuple[Action, ...]:
    """What one rank does in a schedule of the catalogue."""
    return tuple(GENERATORS[name].make(ranks, stages_per_rank, micro_batches, rank))
