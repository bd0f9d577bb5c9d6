"""Schedules from files: the program `ringside` reads, proves, times and lowers them."""

import re
from functools import cache
from typing import List, Tuple

from ringside.library import RingsideError
from ringside.planning.from_program import figures_of
from ringside.planning.pipeline import COMPUTATIONS
from ringside.planning.schedules import Action, Schedule


def read(name: str, ranks: int, micro_batches: int) -> Schedule:
    """The computations of csv:FILE. Raises RingsideError with what is wrong with it."""
    whole = read_lowered(name, ranks, micro_batches)
    return Schedule(
        whole.micro_batches,
        whole.rank_of,
        tuple(
            tuple(each for each in actions if each.kind in COMPUTATIONS)
            for actions in whole.actions
        ),
    )


def read_lowered(name: str, ranks: int, micro_batches: int) -> Schedule:
    """The same with messages and reductions."""
    return _read(name, ranks, micro_batches)[0]


def idle_share(name: str, ranks: int, micro_batches: int) -> float:
    """The idle time of the busiest rank as a part of its busy time, where F, I and W take 1."""
    _, step, busy = _read(name, ranks, micro_batches)
    return (step - busy) / busy


@cache
def _read(name: str, ranks: int, micro_batches: int) -> Tuple[Schedule, float, float]:
    """The schedule, its step, and the busiest rank's time in it."""
    words = ["step", "pipeline", name, "-n", str(ranks), "--micro-batches", str(micro_batches)]
    try:
        told = figures_of(words)
    except RingsideError as error:
        said = str(error)
        if said.startswith(f"{name}: "):  # the findings of the proof, one in each line
            said = f"{name} cannot run: " + said[len(name) + 2 :].replace("\n", "; ")
        raise RingsideError(said) from None
    rank_of = [0] * told["stages"]
    for rank, each in enumerate(told["of_rank"]):
        for stage in each["stages"]:
            rank_of[stage] = rank
    actions = tuple(
        tuple(_action(action["action"]) for action in each["actions"]) for each in told["of_rank"]
    )
    busy: List[float] = [each["busy"] for each in told["of_rank"]]
    return Schedule(told["micro_batches"], tuple(rank_of), actions), told["step"], max(busy)


def _action(text: str) -> Action:
    """2SEND_F0 as an Action."""
    found = re.fullmatch(r"(\d+)([A-Z_]+)(\d*)", text)
    assert found
    return Action(found[2], int(found[1]), int(found[3]) if found[3] else -1)
