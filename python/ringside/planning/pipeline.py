"""Lowering of pipeline schedules, and the graph of their actions: the second text of
parallel/pipeline/lower.hpp, which explains the model of communication.

A generator (schedules.py) writes computations only. lower() adds the messages between ranks, as
SEND_F, RECV_F, SEND_B and RECV_B, and the reduction of each stage's gradients, REDUCE_GRAD.
"""

from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from ringside.library import RingsideError
from ringside.planning.schedules import GENERATORS, Action, Schedule, actions_of

COMPUTATIONS = ("F", "B", "I", "W")
SENDS = ("SEND_F", "SEND_B")
RECEIVES = ("RECV_F", "RECV_B")
REDUCE = "REDUCE_GRAD"
OTHER_END = {"SEND_F": "RECV_F", "RECV_F": "SEND_F", "SEND_B": "RECV_B", "RECV_B": "SEND_B"}


def make_schedule(name: str, ranks: int, stages_per_rank: int, micro_batches: int) -> Schedule:
    """The computations of all ranks in a schedule of the catalogue."""
    return Schedule(
        micro_batches,
        GENERATORS[name].placement(ranks, stages_per_rank),
        tuple(
            actions_of(name, ranks, stages_per_rank, micro_batches, rank) for rank in range(ranks)
        ),
    )


def other_stage(message: Action) -> int:
    """The stage at the other end of a send or a receive, which may not exist."""
    return message.stage + (1 if message.kind in ("SEND_F", "RECV_B") else -1)


def matching(message: Action) -> Action:
    """2SEND_F0 is received by 3RECV_F0."""
    return Action(OTHER_END[message.kind], other_stage(message), message.micro_batch)


def message_of(schedule: Schedule, computation: Action, way: str) -> Optional[Action]:
    """The message that a computation waits for ("RECV") or that carries away what it makes
    ("SEND"). None where the neighbouring stage does not exist or is on the same rank; W has
    none."""
    kind, stage, micro_batch = computation
    if kind not in ("F", "B", "I"):
        return None
    message = Action(f"{way}_{'F' if kind == 'F' else 'B'}", stage, micro_batch)
    other, rank_of = other_stage(message), schedule.rank_of
    between = 0 <= other < len(rank_of) and rank_of[other] != rank_of[stage]
    return message if between else None


def turns(
    actions: Sequence[Sequence[Action]], is_ready: Callable[[Action], bool]
) -> Iterator[List[Tuple[int, Action]]]:
    """What happens if every action takes one unit of time: in each turn, every rank whose next
    action is ready takes it, as (rank, action). `is_ready` is asked again after each turn. Raises
    RingsideError if ranks wait for each other."""
    done = [0] * len(actions)
    while True:
        turn = [
            (rank, each[done[rank]])
            for rank, each in enumerate(actions)
            if done[rank] < len(each) and is_ready(each[done[rank]])
        ]
        if not turn:
            break
        for rank, _ in turn:
            done[rank] += 1
        yield turn
    for rank, each in enumerate(actions):
        if done[rank] < len(each):
            raise RingsideError(
                f"rank {rank} waits in {each[done[rank]].text()} forever, so the schedule has no "
                "end: `ringside prove pipeline` says why"
            )


def with_reductions(actions: Sequence[Action]) -> List[Action]:
    """The computations of a rank, with the reduction of each stage after its last B or W."""
    last = {each.stage: each for each in actions if each.kind in ("B", "W")}
    whole: List[Action] = []
    for each in actions:
        whole.append(each)
        if last.get(each.stage) == each:
            whole.append(Action(REDUCE, each.stage))
    return whole


def lower(schedule: Schedule) -> Schedule:
    """Adds reductions and messages to a schedule of computations. A send follows the computation
    that makes its tensor, and its receive is posted on the other rank in the same turn: so both
    ends of a lane have the same order."""
    lowered: List[List[Action]] = [[] for _ in schedule.actions]
    posted: Set[Optional[Action]] = {None}

    def is_ready(action: Action) -> bool:
        return message_of(schedule, action, "RECV") in posted

    for turn in turns(list(map(with_reductions, schedule.actions)), is_ready):
        for rank, action in turn:
            lowered[rank].append(action)
        for rank, action in turn:
            message = message_of(schedule, action, "SEND")
            if message:
                receive = matching(message)
                lowered[rank].append(message)
                lowered[schedule.rank_of[receive.stage]].append(receive)
                posted.add(receive)
    return Schedule(schedule.micro_batches, schedule.rank_of, tuple(map(tuple, lowered)))


class Node(NamedTuple):
    """Action `index` of a rank. A computation waits for the `send`, (rank, index), of its message;
    None: it needs none."""

    rank: int
    index: int
    action: Action
    send: Optional[Tuple[int, int]] = None


def in_order(lowered: Schedule) -> List[Node]:
    """The graph of a step: all actions, each after the one before it on its rank, and a computation
    after the send that it waits for."""
    sent: Dict[Optional[Action], Optional[Tuple[int, int]]] = {None: None}  # by their receives
    nodes: List[Node] = []
    done = [0] * lowered.ranks

    def needed_by(action: Action) -> Optional[Action]:
        return message_of(lowered, action, "RECV")

    for turn in turns(lowered.actions, lambda action: needed_by(action) in sent):
        for rank, action in turn:
            nodes.append(Node(rank, done[rank], action, sent[needed_by(action)]))
            if action.kind in SENDS:
                sent[matching(action)] = rank, done[rank]
            done[rank] += 1
    return nodes
