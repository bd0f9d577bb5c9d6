"""Lowering of pipeline schedules, and an order in which their actions can be computed: the second
text of parallel/pipeline/lower.hpp, which explains the model of communication.

A generator (schedules.py) writes computations only. lower() adds the messages between ranks, as
SEND_F, RECV_F, SEND_B and RECV_B, and the reduction of each stage's gradients, REDUCE_GRAD.
"""

from typing import Dict, List, Optional, Set, Tuple

from ringside.planning.json_fields import require
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
    if computation.kind not in ("F", "B", "I"):
        return None
    message = Action(
        f"{way}_{'F' if computation.kind == 'F' else 'B'}",
        computation.stage,
        computation.micro_batch,
    )
    other, rank_of = other_stage(message), schedule.rank_of
    between = 0 <= other < len(rank_of) and rank_of[other] != rank_of[message.stage]
    return message if between else None


def lower(schedule: Schedule) -> Schedule:
    """Adds messages to a schedule that has none, and reductions to one that has none, so that a
    file that lists its own keeps them."""
    kinds = {action.kind for actions in schedule.actions for action in actions}
    actions = [list(each) for each in schedule.actions]
    if REDUCE not in kinds:
        actions = [with_reductions(each) for each in actions]
    if not kinds.intersection(SENDS + RECEIVES):
        actions = with_messages(schedule, actions)
    return Schedule(schedule.micro_batches, schedule.rank_of, tuple(map(tuple, actions)))


def with_reductions(actions: List[Action]) -> List[Action]:
    """The actions of a rank, with the reduction of each stage after its last B or W."""
    last = {each.stage: i for i, each in enumerate(actions) if each.kind in ("B", "W")}
    whole: List[Action] = []
    for i, each in enumerate(actions):
        whole.append(each)
        if last.get(each.stage) == i:
            whole.append(Action(REDUCE, each.stage))
    return whole


def with_messages(schedule: Schedule, todo: List[List[Action]]) -> List[List[Action]]:
    """What happens if every action takes one unit of time: a send follows the computation that
    makes its tensor, and its receive is posted on the other rank at the same time. Both ends of a
    lane so have the same order."""
    lowered: List[List[Action]] = [[] for _ in todo]
    done = [0] * len(todo)
    posted: Set[Action] = set()

    def take(rank: int) -> Action:
        action = todo[rank][done[rank]]
        lowered[rank].append(action)
        done[rank] += 1
        return action

    def send(rank: int, computation: Action) -> None:
        message = message_of(schedule, computation, "SEND")
        if message:
            lowered[rank].append(message)
            receive = matching(message)
            lowered[schedule.rank_of[receive.stage]].append(receive)
            posted.add(receive)

    while True:
        ready = []
        for rank, actions in enumerate(todo):
            if done[rank] < len(actions):
                needed = message_of(schedule, actions[done[rank]], "RECV")
                if needed is None or needed in posted:
                    ready.append(rank)
        if not ready:
            break
        for rank, action in [(rank, take(rank)) for rank in ready]:
            send(rank, action)
    for rank, actions in enumerate(todo):  # ranks that wait for each other: in_order() says so
        while done[rank] < len(actions):
            send(rank, take(rank))
    return lowered


def in_order(lowered: Schedule) -> List[Tuple[int, int]]:
    """All actions as (rank, index), each after the one before it on its rank, and a computation
    after the send that it waits for: every rank in turn goes as far as it gets."""
    place: Dict[Action, int] = {}
    for actions in lowered.actions:
        for i, action in enumerate(actions):
            place.setdefault(action, i)
    done = [0] * len(lowered.actions)
    order: List[Tuple[int, int]] = []
    moved = True
    while moved:
        moved = False
        for rank, actions in enumerate(lowered.actions):
            while done[rank] < len(actions):
                needed = message_of(lowered, actions[done[rank]], "RECV")
                if needed:
                    sent = matching(needed)
                    if done[lowered.rank_of[sent.stage]] <= place.get(sent, -1):
                        break
                order.append((rank, done[rank]))
                done[rank] += 1
                moved = True
    for rank, actions in enumerate(lowered.actions):
        require(
            done[rank] == len(actions),
            f"rank {rank} waits in "
            f"{actions[min(done[rank], len(actions) - 1)].text()} forever, so the schedule has "
            "no end: `ringside prove pipeline` says why",
        )
    return order
