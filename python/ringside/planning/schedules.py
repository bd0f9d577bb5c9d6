"""Pipeline schedules as data: which computations a rank runs, in which order. The second text of
parallel/pipeline/generators/, which has the drawings; a test compares both, action by action.

Stages are numbered from 0 in the order of the forward pass. An action is F (forward), B (backward),
or its halves: I (the gradient of the stage's input) and W (that of its weights).
"""

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import Callable, Deque, Dict, List, NamedTuple, Tuple

UNLIMITED = 1 << 16  # stages


class Action(NamedTuple):
    """"2F0": forward of stage 2 for micro-batch 0. `kind` is the letters of a schedule's CSV."""

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


@lru_cache(maxsize=None)
def layers_of_stage(layers: int, stages: int, stage: int) -> range:
    """The layers of a stage: floor + remainder. The remainder goes first to the stages in between,
    a layer each, because the first one also has the embedding and the last one the head; then to
    the first. Llama 3 divides its 126 layers over 16 stages so: 7, 8 ... 8, 7 (table 4)."""
    each, more = divmod(layers, stages)
    counts = [each + (s <= more if 0 < s < stages - 1 else s == 0 and more > max(0, stages - 2))
              for s in range(stage + 1)]
    return range(sum(counts[:-1]), sum(counts))


# The generators: (ranks p, stages per rank v, micro-batches m, rank) -> actions of the rank.

def gpipe(p: int, v: int, m: int, rank: int) -> Actions:
    """All micro-batches forward, then all backward. Huang et al. 2019, figure 2."""
    return [Action(kind, rank, i) for kind in "FB" for i in range(m)]


def one_f_one_b(p: int, v: int, m: int, rank: int) -> Actions:
    """Narayanan et al. 2021, section 2.2.1."""
    warm_up = min(p - 1 - rank, m)
    actions = [Action("F", rank, i) for i in range(warm_up)]
    for i in range(m):
        if warm_up + i < m:
            actions.append(Action("F", rank, warm_up + i))
        actions.append(Action("B", rank, i))
    return actions


def _in_rounds(kind: str, n: int, p: int, v: int, rank: int) -> Action:
    """The n-th forward or backward of a rank that goes through its v stages in rounds."""
    nth = n % (p * v) // p
    stage = (nth if kind == "F" else v - 1 - nth) * p + rank
    return Action(kind, stage, n // (p * v) * p + n % p)


def interleaved(p: int, v: int, m: int, rank: int) -> Actions:
    """1F1B with v stages per rank. Narayanan et al. 2021, section 2.2.2."""
    total = m * v
    warm_up = min((v - 1) * p + 2 * (p - 1 - rank), total)
    actions = [_in_rounds("F", n, p, v, rank) for n in range(warm_up)]
    for n in range(total):
        if warm_up + n < total:
            actions.append(_in_rounds("F", warm_up + n, p, v, rank))
        actions.append(_in_rounds("B", n, p, v, rank))
    return actions


def looped_bfs(p: int, v: int, m: int, rank: int) -> Actions:
    """All micro-batches through one stage of a rank, then the next. Lamy-Poirier 2023."""
    return ([Action("F", nth * p + rank, i) for nth in range(v) for i in range(m)] +
            [Action("B", nth * p + rank, i) for nth in reversed(range(v)) for i in range(m)])


def zb_h1(p: int, v: int, m: int, rank: int) -> Actions:
    """1F1B with backward in two parts. Qi et al. 2023 (arXiv:2401.10241), figure 3."""
    warm_up = min(p - 1 - rank, m)
    actions = [Action("F", rank, i) for i in range(warm_up)]
    for i in range(m):
        if warm_up + i < m:
            actions.append(Action("F", rank, warm_up + i))
        actions.append(Action("I", rank, i))
        if i >= rank:
            actions.append(Action("W", rank, i - rank))
    return actions + [Action("W", rank, i) for i in range(max(0, m - rank), m)]


def interleaved_zb(p: int, v: int, m: int, rank: int) -> Actions:
    """The interleaved schedule with backward in two parts."""
    total = m * v
    warm_up = min((v - 1) * p + p - 1 - rank, total)
    actions = [_in_rounds("F", n, p, v, rank) for n in range(warm_up)]
    for n in range(total):
        if warm_up + n < total:
            actions.append(_in_rounds("F", warm_up + n, p, v, rank))
        actions.append(_in_rounds("I", n, p, v, rank))
        if n >= rank:
            actions.append(_in_rounds("W", n - rank, p, v, rank))
    return actions + [_in_rounds("W", n, p, v, rank) for n in range(max(0, total - rank), total)]


class _OnV:
    """Two stages of a rank, on the way down and up. Micro-batches that do not exist are left out,
    because a pattern needs a number of them."""

    def __init__(self, p: int, m: int, rank: int):
        self.m, self.actions = m, []  # type: int, Actions
        self.stages = {"down": rank, "up": 2 * p - 1 - rank}
        self.next: Dict[Tuple[str, str], int] = {}

    def add(self, kinds: str, way: str) -> int:
        """The next micro-batch of each kind on this way. Returns the last one."""
        micro_batch = 0
        for kind in kinds:
            micro_batch = self.next.get((kind, way), 0)
            self.next[kind, way] = micro_batch + 1
            self.put(Action(kind, self.stages[way], micro_batch))
        return micro_batch

    def put(self, action: Action) -> None:
        if action.micro_batch < self.m:
            self.actions.append(action)

    def count(self, kind: str, way: str) -> int:
        return self.next.get((kind, way), 0)


def zb_v(p: int, v: int, m: int, rank: int) -> Actions:
    """Two stages placed as a V, backward in two parts. Qi et al. 2024, section 6."""
    planned, on = max(m, 2 * p - 1), _OnV(p, m, rank)
    # Warm-up: forwards down until the first micro-batch comes back up, then both ways in turn.
    for _ in range(2 * (p - rank) - 1):
        on.add("F", "down")
    for _ in range(rank):
        on.add("F", "up"), on.add("F", "down")
    # The first gradients come down from the last stage; the way up has to be fed.
    for _ in range(p - rank):
        on.add("FIW", "up")
    # Steady state: all six.
    while on.count("F", "down") < planned or on.count("F", "up") < planned:
        if on.count("F", "down") < planned:
            on.add("F", "down")
        on.add("IW", "down"), on.add("FIW", "up")
    # The end: first the gradients that another rank waits for, then the weights put off.
    for _ in range(rank):
        on.add("I", "down"), on.add("I", "up")
    for _ in range(p - rank):
        on.add("IW", "down")
    for way in ("up", "down"):
        while on.count("W", way) < planned:
            on.add("W", way)
    return on.actions


def dualpipe_v(p: int, v: int, m: int, rank: int) -> Actions:
    """Forward of one stage beside backward of the other, on a V. DeepSeek-AI 2024, section 3.2.1;
    the order is that of the eight steps that DeepSeek published."""
    behind, planned, on = p - 1 - rank, max(m, 2 * p), _OnV(p, m, rank)
    put_off: Deque[Action] = deque()  # the W of every I

    def backward(way: str, divided: bool) -> None:
        micro_batch = on.count("backward", way)
        on.next["backward", way] = micro_batch + 1
        on.put(Action("I" if divided else "B", on.stages[way], micro_batch))
        if divided:
            put_off.append(Action("W", on.stages[way], micro_batch))

    def weight() -> None:
        if put_off:
            on.put(put_off.popleft())

    # Warm-up: down only, then both ways, then the first gradients.
    for _ in range(2 * behind):
        on.add("F", "down")
    for _ in range(rank + 1):
        on.add("F", "down"), on.add("F", "up")
    for _ in range(behind):
        backward("up", True), weight(), on.add("F", "up")
    # Steady state: forward down beside backward up, forward up beside backward down.
    for _ in range(planned - 2 * p + rank + 1):
        on.add("F", "down"), backward("up", False), on.add("F", "up"), backward("down", False)
    for _ in range(behind):
        backward("up", False), on.add("F", "up"), backward("down", False)
    # The end: backward only. Its second half puts off W: the ranks before wait for the gradients.
    for i in range(rank + 1):
        backward("up", 2 * i >= rank + 1), backward("down", 2 * i >= rank)
    for _ in range(behind):
        weight(), backward("down", True)
    while put_off:
        weight()
    return on.actions


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


GENERATORS: Dict[str, Generator] = {each.name: each for each in (
    Generator("gpipe", gpipe, "m"),
    Generator("1f1b", one_f_one_b, "min(m, p-r)"),
    Generator("interleaved", interleaved, "(v+1)p-1-2r", 1, UNLIMITED, 2, whole_rounds=True),
    Generator("looped_bfs", looped_bfs, "vm", 1, UNLIMITED, 2),
    Generator("zb_h1", zb_h1, "min(m, p)"),
    Generator("zb_v", zb_v, "2p", 2, 2, 2, v_placement),
    Generator("interleaved_zb", interleaved_zb, "vp", 1, UNLIMITED, 2, whole_rounds=True),
    Generator("dualpipe_v", dualpipe_v, "2p+1", 2, 2, 2, v_placement),
)}


@lru_cache(maxsize=512)
def actions_of(name: str, ranks: int, stages_per_rank: int, micro_batches: int,
               rank: int) -> Tuple[Action, ...]:
    """What one rank does in a schedule of the catalogue."""
    return tuple(GENERATORS[name].make(ranks, stages_per_rank, micro_batches, rank))
