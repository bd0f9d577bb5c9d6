"""Algorithms as data: messages become schedules, and schedules are proved, without a build.

The form is that of `--algorithm FILE` (docs/your_own.md), with the schedules of all ranks:

    {"collective": "all_reduce", "schedules": [RANK 0, RANK 1, ...]}     "root" too, if it has one

`faults_of` is the text of collectives/proof/verify.cpp: all ranks take their steps in lockstep, and
each chunk is followed as the contributions that are added up in it.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, DefaultDict, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

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

INPUT = -1


class Value(NamedTuple):
    """What a chunk of a rank held after `version` messages had arrived in it, or the INPUT of the
    rank, which it can send at any time."""

    rank: int
    chunk: int
    version: int


class Packing:
    """Schedules that grow by one message at a time. A rank sends one message in a step, which it
    held before the step, and receives one."""

    def __init__(self, size: int, chunks: int):
        self.chunks = chunks
        # [rank, chunk] the steps whose messages arrived in it, after what it held at first
        self.arrivals: DefaultDict[Tuple[int, int], List[int]] = defaultdict(lambda: [-1])
        self.last_sent: Counter[Tuple[int, int]] = Counter()  # [rank, chunk] the last such step
        self.steps: List[Dict[int, Json]] = [{} for _ in range(size)]  # [rank][step]

    def held(self, rank: int, first: int, count: int) -> List[Value]:
        """What the chunks of a rank hold after all messages so far."""
        return [
            Value(rank, chunk, len(self.arrivals[rank, chunk]) - 1)
            for chunk in range(first, first + count)
        ]

    def add(self, values: Sequence[Value], receiver: int, first: int, action: str) -> bool:
        """Sends chunks that lie side by side to the receiver's chunks from `first` on, in the first
        step in which the sender holds them, the receiver has no more use for what it overwrites,
        and neither has another message. Returns whether there is such a step."""
        sender, taken, version = values[0]
        earliest, latest = 0, float("inf")
        for chunk, value in enumerate(values, first):
            there = self.arrivals[receiver, chunk][-1]
            earliest = max(earliest, there + 1, self.last_sent[receiver, chunk])
            if version != INPUT:
                here = self.arrivals[sender, value.chunk][value.version :]
                earliest = max(earliest, here[0] + 1)
                latest = min([latest, *here[1:2]])
        sends, receives = self.steps[sender], self.steps[receiver]
        step = earliest
        while "send" in sends.get(step, ()) or "receive" in receives.get(step, ()):
            step += 1
        if step > latest:
            return False
        for chunk, value in enumerate(values, first):
            if version != INPUT:
                source = sender, value.chunk
                self.last_sent[source] = max(self.last_sent[source], step)
            self.arrivals[receiver, chunk].append(step)
        named = {"first": first, "count": len(values)}
        other = {"input": taken} if version == INPUT else {"held": taken} if taken != first else {}
        sends.setdefault(step, {})["send"] = {"to": receiver, **named, **other}
        receives.setdefault(step, {})["receive"] = {"from": sender, **named, "action": action}
        return True

    def schedules(self) -> List[Json]:
        """Those of all ranks, with an empty step where a rank has no message."""
        length = 1 + max((step for each in self.steps for step in each), default=-1)

        def step_of(taken: Json) -> Json:
            return {kind: taken[kind] for kind in ("send", "receive") if kind in taken}

        return [
            {"chunks": self.chunks, "steps": [step_of(each.get(i, {})) for i in range(length)]}
            for each in self.steps
        ]


@dataclass
class Message:
    """Chunks first, first+1, ... from one rank to another; action: "add" or "overwrite"."""

    sender: int
    receiver: int
    first: int
    count: int = 1
    action: str = "overwrite"


def pack_messages(size: int, chunks: int, messages: Sequence[Message]) -> List[Json]:
    """The schedules of all ranks. Their result is what it would be one message after the other."""
    packing = Packing(size, chunks)
    for each in messages:
        values = packing.held(each.sender, each.first, each.count)
        packing.add(values, each.receiver, each.first, each.action)
    return packing.schedules()


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
    """ "chunks 0 to 3", for a sentence."""
    if chunks is None:
        return "nothing"
    if len(chunks) <= 1:
        return f"chunk {chunks[0]}" if chunks else "a message without payload"
    if list(chunks) == list(range(chunks[0], chunks[0] + len(chunks))):
        return f"chunks {chunks[0]} to {chunks[-1]}"
    return "chunks " + ", ".join(map(str, chunks))


def fault_of_shape(collective: str, schedules: Sequence[Json]) -> str:
    """What is wrong with the numbers of chunks and of steps; "" if they are right."""

    def shape(schedule: Json) -> str:
        steps = counted(len(schedule["steps"]), "step")
        return f"{counted(schedule['chunks'], 'chunk')} and {steps}"

    size, chunks = len(schedules), schedules[0]["chunks"]
    for rank, each in enumerate(schedules):
        if shape(each) != shape(schedules[0]):
            return f"rank {rank} has {shape(each)}, but rank 0 has {shape(schedules[0])}"
    if chunks < 1:
        return f"the buffer must be cut into at least 1 chunk, not into {chunks}"
    if COLLECTIVES[collective].has_blocks and chunks % size:
        return f"{collective} on {size} ranks needs a multiple of {size} chunks, not {chunks}"
    return ""


def faults_of_messages(collective: str, schedules: Sequence[Json], step: int) -> List[str]:
    """Messages whose ends do not match, or that name a rank or a chunk that there is not."""
    size, chunks = len(schedules), schedules[0]["chunks"]
    ends: Dict[str, Dict[Tuple[int, int], List[int]]] = {"send": {}, "receive": {}}
    found = []
    for rank, each in enumerate(schedules):
        for kind, message in each["steps"][step].items():
            named, taken = chunks_of(message, chunks), chunks_sent(message, chunks)
            peer, to = (message["to"], "to") if kind == "send" else (message["from"], "from")
            ends[kind][(rank, peer) if kind == "send" else (peer, rank)] = named
            does = f"rank {rank} {kind}s {in_words(named)} {to} rank {peer}"
            if not 0 <= peer < size:
                found.append(f"{does}, but the ranks are 0 to {size - 1}")
            if any(not 0 <= chunk < chunks for chunk in named + taken):
                found.append(f"{does}, but the chunks are 0 to {chunks - 1}")
            if len(set(named)) < len(named):
                found.append(f"{does}, but a message takes a chunk once")
            if taken != named and collective != "all_to_all":
                found.append(f"{does} from its {in_words(taken)}, and only an all_to_all may do so")
    for sender, receiver in sorted({*ends["send"], *ends["receive"]}):
        sent, expected = (each.get((sender, receiver)) for each in ends.values())
        if sent != expected:
            found.append(
                f"rank {sender} sends {in_words(sent)} to rank {receiver}, but rank {receiver} "
                f"expects {in_words(expected)} from rank {sender}"
            )
    return [f"step {step}: {fault}" for fault in found]


Counts = Dict[Tuple[int, int], int]  # how often a sum holds the input of each rank and chunk


def sum_of(a: Counts, b: Counts) -> Counts:
    both = {**a, **b}
    if len(both) < len(a) + len(b):
        both.update({each: a[each] + b[each] for each in a.keys() & b.keys()})
    return both


def sums_at_the_end(schedules: Sequence[Json]) -> Tuple[List[List[int]], List[Counts]]:
    """[rank][chunk] the number of the sum that it holds after all steps, and [number] what that sum
    holds. Sums of one number were added up in the same order: a+b and b+a are, (a+b)+c and a+(b+c)
    are not."""
    ranks, chunks = range(len(schedules)), schedules[0]["chunks"]
    counts: List[Counts] = [{(rank, chunk): 1} for rank in ranks for chunk in range(chunks)]
    number_of: Dict[FrozenSet[int], int] = {}  # the two that were added
    inputs = [list(range(rank * chunks, (rank + 1) * chunks)) for rank in ranks]
    states = [list(state) for state in inputs]

    def added(a: int, b: int) -> int:
        both = frozenset((a, b))
        if both not in number_of:
            number_of[both] = len(counts)
            counts.append(sum_of(counts[a], counts[b]))
        return number_of[both]

    for steps in zip(*(each["steps"] for each in schedules)):
        messages = {}  # [receiver], all before any of them arrives
        for rank, step in enumerate(steps):
            if "send" in step:
                source = (inputs if "input" in step["send"] else states)[rank]
                taken = chunks_sent(step["send"], chunks)
                messages[step["send"]["to"]] = [source[chunk] for chunk in taken]
        for rank, step in enumerate(steps):
            if "receive" in step:
                state, adds = states[rank], step["receive"]["action"] == "add"
                for chunk, sent in zip(chunks_of(step["receive"], chunks), messages[rank]):
                    state[chunk] = added(state[chunk], sent) if adds else sent
    return states, counts


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
    """ "holds rank 3's chunk 0 twice, lacks rank 0's chunk 0"."""
    found: Dict[str, List[str]] = {"holds": [], "should not hold": [], "lacks": []}
    for rank, chunk in sorted({*held, *wanted}):
        each, times = f"rank {rank}'s chunk {chunk}", held.get((rank, chunk), 0)
        if times == 0:
            found["lacks"].append(each)
        elif (rank, chunk) not in wanted:
            found["should not hold"].append(each)
        elif times > 1:
            found["holds"].append(f"{each} {'twice' if times == 2 else f'{times} times'}")
    return ", ".join(f"{verb} {' and '.join(each)}" for verb, each in found.items() if each)


def faults_of(algorithm: Json) -> List[str]:
    """Sentences on what is wrong with an algorithm; none: it is proved to keep the promise of its
    collective. Later checks are made only where those before found nothing."""
    collective, schedules = algorithm["collective"], algorithm["schedules"]
    misshapen = fault_of_shape(collective, schedules)
    if misshapen:
        return [misshapen]
    size, chunks, steps = len(schedules), schedules[0]["chunks"], len(schedules[0]["steps"])
    found: List[str] = []
    for step in range(steps):
        found += faults_of_messages(collective, schedules, step)
    if found:
        return found
    states, counts = sums_at_the_end(schedules)
    places = [(rank, chunk) for rank in range(size) for chunk in range(chunks)]
    for rank, chunk in places:
        wanted = promised(collective, algorithm.get("root") or 0, size, chunks, rank, chunk)
        held = counts[states[rank][chunk]]
        if wanted not in (None, held):
            fault = fault_of_chunk(held, wanted)
            found.append(f"at the end chunk {chunk} on rank {rank} {fault}")
    if not found and collective == "all_reduce":
        found = [
            f"at the end chunk {chunk} on rank {rank} was added up in another order than on rank "
            "0: the last bits may differ"
            for rank, chunk in places
            if states[rank][chunk] != states[0][chunk]
        ]
    return found
