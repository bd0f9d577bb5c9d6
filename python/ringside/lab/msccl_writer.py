"""Writes schedules as XML for the runtime of Microsoft's MSCCL (msccl_reader.py has the format)."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Dict, Iterator, List, Sequence, Set, Tuple

from ringside.lab.lockstep import Json, chunks_of, chunks_sent
from ringside.lab.msccl_reader import COLLECTIVE_OF, KINDS, Kind, fail

# What MSCCL holds (its msccl.h): a block's steps, a GPU's blocks on a channel, a step's chunks.
MOST_STEPS, MOST_BLOCKS, MOST_CHUNKS_OF_STEP = 256, 32, 71
TYPE_OF = {kind: name for name, kind in KINDS.items()}


@dataclass
class Step:
    """A step of a thread block, by its attributes."""

    type: str
    srcbuf: str
    srcoff: int
    dstbuf: str
    dstoff: int
    cnt: int
    depid: int = -1  # it waits for this block, and there for step `deps`
    deps: int = -1
    hasdep: int = 0  # 1: another waits for it


@dataclass
class Block:
    send_to: int  # -1: nobody
    receive_from: int
    steps: List[Step] = field(default_factory=list)


def keeps_input(schedule: Json) -> bool:
    """Whether each original input that is sent is still in the buffer then."""
    changed: Set[int] = set()
    for step in schedule["steps"]:
        if "input" in step.get("send", ()):
            if not changed.isdisjoint(chunks_sent(step["send"], schedule["chunks"])):
                return False
        if "receive" in step:
            changed.update(chunks_of(step["receive"], schedule["chunks"]))
    return True


def chunks_to_copy(schedule: Json) -> List[int]:
    """Those that are read, or end, as the rank has put them there: all but what is overwritten
    before."""
    chunks = schedule["chunks"]
    used: Set[int] = set()
    overwritten: Set[int] = set()
    for step in schedule["steps"]:
        if "send" in step and "input" not in step["send"]:
            used.update(chunks_sent(step["send"], chunks))
        if "receive" in step:
            received = set(chunks_of(step["receive"], chunks))
            if step["receive"]["action"] == "overwrite":
                overwritten |= received - used
            used |= received
    return [chunk for chunk in range(chunks) if chunk not in overwritten]


def pieces_of(send: Json, chunks: int) -> List[Tuple[int, int, int]]:
    """The runs of a message that lie side by side on both ends: where it begins at the sender and
    at the receiver, and its length."""
    found: List[Tuple[int, int, int]] = []
    for taken, named in zip(chunks_sent(send, chunks), chunks_of(send, chunks)):
        first, there, length = found[-1] if found else (0, 0, MOST_CHUNKS_OF_STEP)
        if length < MOST_CHUNKS_OF_STEP and (taken, named) == (first + length, there + length):
            found[-1] = (first, there, length + 1)
        else:
            found.append((taken, named, 1))
    return found


def steps_of(
    schedules: Sequence[Json], rank: int, in_place: bool, output: str
) -> Iterator[Tuple[int, int, Step]]:
    """One GPU's steps in the order of its schedule: the peer to which each sends, the one from
    which it receives, -1 for nobody, and the step.

    `output`: the buffer in which the schedule runs, i or o. Without `in_place` the input stays as
    it is: what the output needs of it is copied first."""
    mine, chunks = schedules[rank], schedules[rank]["chunks"]
    for chunk in [] if in_place else chunks_to_copy(mine):
        yield -1, -1, Step("cpy", "i", chunk, "o", chunk, 1)
    for number, step in enumerate(mine["steps"]):
        send, receive = step.get("send"), step.get("receive")
        adds = receive is not None and receive["action"] == "add"
        is_local = send is not None and send["to"] == rank
        sends, receives = [], []
        if send:
            kind = TYPE_OF[Kind(copies=True, adds=adds) if is_local else Kind(sends=True)]
            buffer = "i" if "input" in send and not in_place else output
            sends = [
                Step(kind, buffer, taken, output, named, length)
                for taken, named, length in pieces_of(send, chunks)
            ]
        if receive and receive["from"] != rank:  # in pieces as the sender cuts it
            kind = TYPE_OF[Kind(receives=True, adds=adds)]
            message = schedules[receive["from"]]["steps"][number]["send"]
            receives = [
                Step(kind, output, named, output, named, length)
                for _, named, length in pieces_of(message, chunks)
            ]
        # In turn, so that neither end of a connection holds up the other.
        arrived: Set[int] = set()
        for sent, received in zip_longest(sends, receives):
            if sent:
                is_late = not arrived.isdisjoint(range(sent.srcoff, sent.srcoff + sent.cnt))
                if is_late and sent.srcbuf == output:
                    fail(
                        f"step {number + 1} of rank {rank} sends in pieces what it also receives: "
                        "a file of MSCCL would need scratch memory"
                    )
                yield -1 if is_local else send["to"], -1, sent
            if received:
                arrived.update(range(received.dstoff, received.dstoff + received.cnt))
                yield -1, receive["from"], received


def blocks_of(rank: int, steps: Sequence[Tuple[int, int, Step]]) -> List[Block]:
    """One GPU's part: the nth block sends to the nth peer and receives from the nth. Its steps are
    in one order, that of the schedule: a step waits for the one before it where that stands in
    another block. So no step waits for two, which MSCCL could only say by a nop, and nops shift the
    numbers that its compiler and its interpreter give to steps."""
    receivers = list(dict.fromkeys(to for to, _, _ in steps if to >= 0))
    senders = list(dict.fromkeys(source for _, source, _ in steps if source >= 0))
    blocks = [Block(*peers) for peers in zip_longest(receivers, senders, fillvalue=-1)]
    if len(blocks) > MOST_BLOCKS:
        fail(f"rank {rank} has {len(blocks)} peers: MSCCL takes up to {MOST_BLOCKS}")
    if steps and not blocks:  # a rank alone
        blocks = [Block(-1, -1)]
    before = -1
    for to, source, step in steps:
        number = receivers.index(to) if to >= 0 else senders.index(source) if source >= 0 else 0
        if before not in (-1, number):
            step.depid, step.deps = before, len(blocks[before].steps) - 1
            blocks[before].steps[-1].hasdep = 1
        blocks[number].steps.append(step)
        before = number
    for block in blocks:
        if len(block.steps) >= MOST_STEPS:
            fail(
                f"a block of rank {rank} has {len(block.steps)} steps: MSCCL takes up to "
                f"{MOST_STEPS - 1}"
            )
    return blocks


def attributes(**values: "str | int") -> Dict[str, str]:
    return {key: str(value) for key, value in values.items()}


def write_xml(algorithm: Json, name: str) -> str:
    """A file for these ranks, over one channel. In place where every rank still holds what it sends
    of its input; otherwise the input is copied to the output first. Raises RingsideError for what
    MSCCL cannot take."""
    collective, schedules = algorithm["collective"], algorithm["schedules"]
    ranks, chunks = len(schedules), schedules[0]["chunks"]
    in_place = collective != "all_to_all" and all(map(keeps_input, schedules))
    if collective == "reduce_scatter" and not in_place:
        fail(
            "this reduce_scatter sends input that it has added to before: a file of MSCCL would "
            "need scratch memory"
        )
    gathers, scatters = collective == "all_gather", collective == "reduce_scatter"
    coll = next(key for key, value in COLLECTIVE_OF.items() if value == collective)
    head = attributes(name=name, proto="Simple", nchannels=1, nchunksperloop=chunks, ngpus=ranks)
    algo = ET.Element("algo", head, coll=coll, inplace=str(int(in_place)))
    i_chunks, o_chunks = (chunks // ranks if part else chunks for part in (gathers, scatters))
    output = "i" if in_place and not gathers else "o"
    for rank in range(ranks):
        sizes = attributes(id=rank, i_chunks=i_chunks, o_chunks=o_chunks, s_chunks=0)
        gpu = ET.SubElement(algo, "gpu", sizes)
        steps = list(steps_of(schedules, rank, in_place, output))
        for index, block in enumerate(blocks_of(rank, steps)):
            peers = attributes(id=index, send=block.send_to, recv=block.receive_from, chan=0)
            tb = ET.SubElement(gpu, "tb", peers)
            for number, step in enumerate(block.steps):
                ET.SubElement(tb, "step", attributes(s=number, **vars(step)))
    ET.indent(algo)
    return ET.tostring(algo, encoding="unicode") + "\n"
