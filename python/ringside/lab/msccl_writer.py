"""Writes schedules as XML for the runtime of Microsoft's MSCCL (msccl_reader.py has the format)."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from typing import Dict, List, Sequence, Tuple

from ringside.lab.lockstep import Json, chunks_of, chunks_sent
from ringside.lab.msccl_reader import COLLECTIVES, Place, fail

# What MSCCL holds (its msccl.h): a block's steps, a GPU's blocks on a channel, a step's chunks.
MOST_STEPS, MOST_BLOCKS, MOST_CHUNKS_OF_STEP = 256, 32, 71


@dataclass
class Line:
    """A step of a thread block."""

    type: str
    source: Place
    target: Place
    count: int
    after: Tuple[int, int] = (-1, -1)  # it waits for this block and step
    is_awaited: bool = False


@dataclass
class Block:
    peers: List[int] = field(default_factory=lambda: [-1, -1])  # it sends to, and receives from
    lines: List[Line] = field(default_factory=list)


def keeps_input(schedule: Json) -> bool:
    """Whether each original input that is sent is still in the buffer then."""
    changed: set = set()
    for step in schedule["steps"]:
        if "input" in step.get("send", ()) and not changed.isdisjoint(
            chunks_sent(step["send"], schedule["chunks"])
        ):
            return False
        if "receive" in step:
            changed.update(chunks_of(step["receive"], schedule["chunks"]))
    return True


def chunks_to_copy(schedule: Json) -> List[int]:
    """Those that are read, or end, as the rank has put them there."""
    read_first: Dict[int, bool] = {}
    for step in schedule["steps"]:
        if "send" in step and "input" not in step["send"]:
            for chunk in chunks_sent(step["send"], schedule["chunks"]):
                read_first.setdefault(chunk, True)
        if "receive" in step:
            for chunk in chunks_of(step["receive"], schedule["chunks"]):
                read_first.setdefault(chunk, step["receive"]["action"] == "add")
    return [chunk for chunk in range(schedule["chunks"]) if read_first.get(chunk, True)]


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


def overlap(sent: Line, received: Line) -> bool:
    (buffer, first), (target, start) = sent.source, received.target
    return buffer == target and first < start + received.count and start < first + sent.count


def blocks_of(schedules: Sequence[Json], rank: int, in_place: bool, output: str) -> List[Block]:
    """One GPU's part: a block for each pair of peers. Its lines are in one order, that of the
    schedule: a line waits for the one before it where that stands in another block. So no line
    waits for two, which MSCCL could only say by a nop, and nops shift the numbers that its compiler
    and its interpreter give to steps.

    `output`: the buffer in which the schedule runs, i or o. Without `in_place` the input stays as
    it is: what the output needs of it is copied first."""
    mine, chunks = schedules[rank], schedules[rank]["chunks"]
    blocks: List[Block] = []
    before: List[Block] = []  # the block of the line before

    def block_for(peer: int, side: int) -> Block:
        for wanted in (peer, -1):
            for block in blocks:
                if block.peers[side] == wanted:
                    block.peers[side] = peer
                    return block
        blocks.append(Block())
        blocks[-1].peers[side] = peer
        return blocks[-1]

    def add(block: Block, line: Line) -> None:
        if before and before[0] is not block:
            before[0].lines[-1].is_awaited = True
            line.after = (index_of(before[0]), len(before[0].lines) - 1)
        before[:] = [block]
        block.lines.append(line)

    def index_of(block: Block) -> int:
        return next(i for i, each in enumerate(blocks) if each is block)

    for step in mine["steps"]:  # the nth block sends to the nth peer and receives
        for side, peer in (
            (0, step.get("send", {}).get("to", rank)),
            (1, step.get("receive", {}).get("from", rank)),
        ):
            if peer != rank:
                block_for(peer, side)
    if len(blocks) > MOST_BLOCKS:
        fail(f"rank {rank} has {len(blocks)} peers: MSCCL takes up to {MOST_BLOCKS}")
    blocks = blocks or [Block()]
    for chunk in [] if in_place else chunks_to_copy(mine):
        add(blocks[0], Line("cpy", ("i", chunk), ("o", chunk), 1))
    for number, step in enumerate(mine["steps"]):
        send, receive = step.get("send"), step.get("receive")
        adds = receive is not None and receive["action"] == "add"
        sends, receives = [], []
        if send:
            buffer = "i" if "input" in send and not in_place else output
            kind = "s" if send["to"] != rank else "re" if adds else "cpy"
            sends = [
                Line(kind, (buffer, taken), (output, named), length)
                for taken, named, length in pieces_of(send, chunks)
            ]
        if receive and receive["from"] != rank:  # in pieces as the sender cuts it
            sent = schedules[receive["from"]]["steps"][number]["send"]
            receives = [
                Line("rrc" if adds else "r", (output, named), (output, named), length)
                for _, named, length in pieces_of(sent, chunks)
            ]
        # In turn, so that neither end of a connection holds up the other.
        for i in range(max(len(sends), len(receives))):
            if i < len(sends):
                if any(overlap(sends[i], each) for each in receives[:i]):
                    fail(
                        f"step {number + 1} of rank {rank} sends in pieces what it also receives: "
                        "a file of MSCCL would need scratch memory"
                    )
                add(blocks[0] if send["to"] == rank else block_for(send["to"], 0), sends[i])
            if i < len(receives):
                add(block_for(receive["from"], 1), receives[i])
    for block in blocks:
        if len(block.lines) >= MOST_STEPS:
            fail(
                f"a block of rank {rank} has {len(block.lines)} steps: MSCCL takes up to "
                f"{MOST_STEPS - 1}"
            )
    return [block for block in blocks if block.lines]  # a rank alone may have nothing to do


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
    coll = next(key for key, value in COLLECTIVES.items() if value == collective)
    algo = element(
        None,
        "algo",
        name=name,
        proto="Simple",
        nchannels=1,
        nchunksperloop=chunks,
        ngpus=ranks,
        coll=coll,
        inplace=int(in_place),
    )
    for rank in range(ranks):
        gpu = element(
            algo,
            "gpu",
            id=rank,
            i_chunks=chunks // ranks if gathers else chunks,
            o_chunks=chunks // ranks if scatters else chunks,
            s_chunks=0,
        )
        output = "i" if in_place and not gathers else "o"
        for index, block in enumerate(blocks_of(schedules, rank, in_place, output)):
            tb = element(gpu, "tb", id=index, send=block.peers[0], recv=block.peers[1], chan=0)
            for number, line in enumerate(block.lines):
                element(
                    tb,
                    "step",
                    s=number,
                    type=line.type,
                    srcbuf=line.source[0],
                    srcoff=line.source[1],
                    dstbuf=line.target[0],
                    dstoff=line.target[1],
                    cnt=line.count,
                    depid=line.after[0],
                    deps=line.after[1],
                    hasdep=int(line.is_awaited),
                )
    ET.indent(algo)
    return ET.tostring(algo, encoding="unicode") + "\n"


def element(parent: "ET.Element | None", kind: str, **attributes: "str | int") -> ET.Element:
    texts = {key: str(value) for key, value in attributes.items()}
    return ET.Element(kind, texts) if parent is None else ET.SubElement(parent, kind, texts)
