"""Algorithms as data: messages become schedules, and schedules are proved, without a build.

The form is that of `--algorithm FILE` (docs/your_own.md), with the schedules of all ranks:

    {"collective": "all_reduce", "schedules": [RANK 0, RANK 1, ...]}     "root" too, if it has one

`faults_of` is the text of collectives/proof/verify.cpp: all ranks take their steps in lockstep, and
each chunk is followed as the contributions that are added up in it.
"""

from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Sequence, Tuple

from ringside.command_line import counted

Json = Dict[str, Any]


@dataclass(frozen=True)
class Collective:
    """`promise` is what holds at the end. With blocks the buffer has a block for each rank."""

    promise: str
    has_root: bool = False
    reduces: bool = False
    has_blocks: bool = False


COLLECTIVES = {
    "all_reduce": Collective("every rank holds the sum of all ranks", reduces=True),
    "reduce_scatter": Collective("rank r holds chunk r of the sum", reduces=True, has_blocks=True),
    "all_gather": Collective("rank c's chunk c is on every rank", has_blocks=True),
    "broadcast": Collective("every rank holds what the root held", has_root=True),
    "reduce": Collective("the root holds the sum of all ranks", has_root=True, reduces=True),
    "gather": Collective("rank c's chunk c is on the root", has_root=True, has_blocks=True),
    "scatter": Collective("rank r holds the root's chunk r", has_root=True, has_blocks=True),
    "all_to_all": Collective("rank r's chunk c is rank c's chunk r", has_blocks=True),
}


# Messages to schedules.


@dataclass
class Message:
    """Chunks first, first+1, ... from one rank to another; action: "add" or "overwrite"."""

    sender: int
    receiver: int
    first: int
    count: int = 1
    action: str = "overwrite"


def pack_messages(size: int, chunks: int, messages: Sequence[Message]) -> List[Json]:
    """The schedules of all ranks. A message takes the first step in which its sender sends nothing
    and its receiver receives nothing, after the steps whose data it needs: the result is what it
    would be one message after the other."""
    # [rank][chunk] the last step that sends it, and the last that receives into it.
    sent, received = ([[-1] * chunks for _ in range(size)] for _ in range(2))
    taken: List[Dict[int, Json]] = [{} for _ in range(size)]  # [rank][step]
    for message in messages:
        send = {"to": message.receiver, "first": message.first, "count": message.count}
        receive = {
            "from": message.sender,
            "first": message.first,
            "count": message.count,
            "action": message.action,
        }
        sender, receiver = taken[message.sender], taken[message.receiver]
        moved = range(message.first, message.first + message.count)
        # A rank sends what it held before the step: it may receive in the step that sends.
        step = max(
            max(
                received[message.sender][chunk] + 1,
                received[message.receiver][chunk] + 1,
                sent[message.receiver][chunk],
            )
            for chunk in moved
        )
        step = max(step, 0)
        while "send" in sender.get(step, {}) or "receive" in receiver.get(step, {}):
            step += 1
        sender.setdefault(step, {})["send"] = send
        receiver.setdefault(step, {})["receive"] = receive
        for chunk in moved:
            sent[message.sender][chunk] = max(sent[message.sender][chunk], step)
            received[message.receiver][chunk] = step
    steps = 1 + max((step for each in taken for step in each), default=-1)
    return [
        {
            "chunks": chunks,
            "steps": [
                {key: each[step][key] for key in ("send", "receive") if key in each[step]}
                if step in each
                else {}
                for step in range(steps)
            ],
        }
        for each in taken
    ]


# The proof.


def chunks_of(message: Json, chunks: int, first: Optional[int] = None) -> List[int]:
    """The chunks that a send or a receive names, in their order; from `first` on, where it is
    given."""
    begin, count = message["first"], message["count"]
    stride, run = message.get("stride"), message.get("run", 1)
    if stride == -1:
        begin, stride, run = (begin - count + 1) % chunks, 1, 1
    begin = begin if first is None else first
    if stride is None:
        return list(range(begin, begin + count))
    return [(begin + i // run * stride + i % run) % chunks for i in range(count)]


def chunks_sent(send: Json, chunks: int) -> List[int]:
    """The chunks of a send as its sender names them."""
    return chunks_of(send, chunks, send.get("input", send.get("held")))


def in_words(chunks: Optional[Sequence[int]]) -> str:
    if chunks is None:
        return "nothing"
    if len(chunks) <= 1:
        return f"chunk {chunks[0]}" if chunks else "a message without payload"
    if list(chunks) == list(range(chunks[0], chunks[0] + len(chunks))):
        return f"chunks {chunks[0]} to {chunks[-1]}"
    return "chunks " + ", ".join(map(str, chunks))


def fault_of_shape(collective: str, schedules: Sequence[Json]) -> Optional[str]:
    size, chunks, steps = len(schedules), schedules[0]["chunks"], len(schedules[0]["steps"])
    for rank, each in enumerate(schedules):
        if (each["chunks"], len(each["steps"])) != (chunks, steps):
            return (
                f"rank {rank} has {counted(each['chunks'], 'chunk')} and "
                f"{counted(len(each['steps']), 'step')}, but rank 0 has "
                f"{counted(chunks, 'chunk')} and {counted(steps, 'step')}"
            )
    if chunks < 1:
        return f"the buffer must be cut into at least 1 chunk, not into {chunks}"
    if COLLECTIVES[collective].has_blocks and chunks % size:
        return f"{collective} on {size} ranks needs a multiple of {size} chunks, not {chunks}"
    return None


def faults_of_messages(collective: str, schedules: Sequence[Json], step: int) -> List[str]:
    """Messages whose ends do not match, or that name a rank or a chunk that there is not."""
    size, chunks = len(schedules), schedules[0]["chunks"]
    sent: Dict[Tuple[int, int], List[int]] = {}  # [sender, receiver]
    expected: Dict[Tuple[int, int], List[int]] = {}
    found = []
    for rank, each in enumerate(schedules):
        for kind, message in each["steps"][step].items():
            named, taken = chunks_of(message, chunks), chunks_sent(message, chunks)
            peer = message["to" if kind == "send" else "from"]
            ends = (rank, peer) if kind == "send" else (peer, rank)
            (sent if kind == "send" else expected)[ends] = named
            does = (
                f"rank {rank} {kind}s {in_words(named)} {'to' if kind == 'send' else 'from'} "
                f"rank {peer}"
            )
            if not 0 <= peer < size:
                found.append(f"{does}, but the ranks are 0 to {size - 1}")
            if any(not 0 <= chunk < chunks for chunk in named + taken):
                found.append(f"{does}, but the chunks are 0 to {chunks - 1}")
            if len(set(named)) < len(named):
                found.append(f"{does}, but a message takes a chunk once")
            if taken != named and collective != "all_to_all":
                found.append(f"{does} from its {in_words(taken)}, and only an all_to_all may do so")
    for sender, receiver in sorted({*sent, *expected}):
        told, awaited = (each.get((sender, receiver)) for each in (sent, expected))
        if told != awaited:
            found.append(
                f"rank {sender} sends {in_words(told)} to rank {receiver}, but rank "
                f"{receiver} expects {in_words(awaited)} from rank {sender}"
            )
    return [f"step {step}: {fault}" for fault in found]


Contribution = Tuple[int, int]  # rank and chunk
Counts = Dict[Contribution, int]  # how often a sum holds each
Held = Tuple[Counts, int]  # a sum, and the number of the order in which it was added up


def sum_of(a: Counts, b: Counts) -> Counts:
    both = {**a, **b}
    if len(both) < len(a) + len(b):
        both.update({each: a[each] + b[each] for each in a.keys() & b.keys()})
    return both


def states_at_the_end(schedules: Sequence[Json]) -> List[List[Held]]:
    """[rank][chunk] after all steps. Two sums of one number were added up in the same order: a+b
    and b+a are, (a+b)+c and a+(b+c) are not."""
    size, chunks = len(schedules), schedules[0]["chunks"]
    orders: Dict[FrozenSet[int], int] = {}
    states: List[List[Held]] = [
        [({(rank, chunk): 1}, rank) for chunk in range(chunks)] for rank in range(size)
    ]
    inputs = [list(state) for state in states]
    for steps in zip(*(each["steps"] for each in schedules)):
        messages = {}
        for rank, step in enumerate(steps):  # all, before any of them arrives
            if "send" in step:
                source = (inputs if "input" in step["send"] else states)[rank]
                messages[step["send"]["to"]] = [
                    source[chunk] for chunk in chunks_sent(step["send"], chunks)
                ]
        for rank, step in enumerate(steps):
            if "receive" not in step:
                continue
            for chunk, arrived in zip(chunks_of(step["receive"], chunks), messages[rank]):
                held = states[rank][chunk]
                if step["receive"]["action"] == "add":
                    order = frozenset((held[1], arrived[1]))
                    arrived = (
                        sum_of(held[0], arrived[0]),
                        orders.setdefault(order, size + len(orders)),
                    )
                states[rank][chunk] = arrived
    return states


def promised(
    collective: str, root: int, size: int, chunks: int, rank: int, chunk: int
) -> Optional[Counts]:
    """What must be added up in a chunk at the end; None if it does not matter."""
    about = COLLECTIVES[collective]
    parts = chunks // size if about.has_blocks else 1
    owner = chunk // parts
    if collective == "all_to_all":
        return {(owner, rank * parts + chunk % parts): 1}
    if collective in ("reduce_scatter", "scatter") and owner != rank:
        return None
    if collective in ("reduce", "gather") and root != rank:
        return None
    if about.reduces:
        return {(each, chunk): 1 for each in range(size)}
    return {(root if collective in ("broadcast", "scatter") else owner, chunk): 1}


def fault_of_chunk(held: Counts, wanted: Counts) -> str:
    """ "holds rank 3's chunk 0 twice, lacks rank 0's chunk 0"; "" if it is right."""

    def named(contributions: Iterable[Contribution]) -> str:
        return " and ".join(f"rank {rank}'s chunk {chunk}" for rank, chunk in contributions)

    clauses = [
        f"holds {named([each])} {'twice' if times == 2 else f'{times} times'}"
        for each, times in sorted(held.items())
        if each in wanted and times > 1
    ]
    foreign, missing = sorted(held.keys() - wanted.keys()), sorted(wanted.keys() - held.keys())
    clauses += [f"should not hold {named(foreign)}"] if foreign else []
    clauses += [f"lacks {named(missing)}"] if missing else []
    return ", ".join(clauses)


def faults_of(algorithm: Json) -> List[str]:
    """Sentences on what is wrong with an algorithm; none: it is proved to keep the promise of its
    collective. Later checks are made only where those before found nothing."""
    collective, schedules = algorithm["collective"], algorithm["schedules"]
    root = algorithm.get("root") or 0
    misshapen = fault_of_shape(collective, schedules)
    if misshapen:
        return [misshapen]
    found = [
        fault
        for step in range(len(schedules[0]["steps"]))
        for fault in faults_of_messages(collective, schedules, step)
    ]
    if found:
        return found
    size, chunks = len(schedules), schedules[0]["chunks"]
    states = states_at_the_end(schedules)
    for rank in range(size):
        for chunk in range(chunks):
            wanted = promised(collective, root, size, chunks, rank, chunk)
            fault = wanted and fault_of_chunk(states[rank][chunk][0], wanted)
            if fault:
                found.append(f"at the end chunk {chunk} on rank {rank} {fault}")
    if not found and collective == "all_reduce":
        found = [
            f"at the end chunk {chunk} on rank {rank} was added up in another order than on "
            "rank 0: the last bits may differ"
            for rank in range(size)
            for chunk in range(chunks)
            if states[rank][chunk][1] != states[0][chunk][1]
        ]
    return found
