"""Reads algorithms of Microsoft's MSCCL, as msccl-tools writes them, as schedules.

    <algo name="exchange" coll="allreduce" ngpus="2" nchunksperloop="1" inplace="1">
      <gpu id="0" i_chunks="1" o_chunks="0" s_chunks="0">
        <tb id="0" send="1" recv="1" chan="0">
          <step s="0" type="s" srcbuf="i" srcoff="0" cnt="1" depid="-1" deps="-1" />
          <step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" ... />

A thread block (tb) takes its steps in order. It sends to one peer and receives from one, on a
channel; the nth send on a channel is the nth receive. A step waits until step `deps` of block
`depid` is done.

    s      send                              r     receive
    rcs    receive, and send that on         rrc   receive, and add
    rrs    receive, add, send, do not keep   rrcs  receive, add, and send
    cpy    copy on this GPU                  re    add on this GPU            nop   only wait

Each GPU sends one message and receives one in a step of our schedules, so a step of many blocks
becomes several. The instructions are executed one by one, and each message takes the first step
in which its sender holds the data, its receiver has no more use for what it overwrites, and neither
has another message.

The buffers i and o (input, output) become the chunks of our one buffer, which begins as the input;
they are one memory where the algorithm is in place. A schedule has no scratch memory (s): what
arrives there is sent when it is first used. What a GPU forwards from there it keeps in chunks of
its own that are still empty. A file for which there are none, or that needs old data, is refused.

Source of the format: Cowan, Maleki, Musuvathi, Saarikivi and Xiong, "MSCCLang: Microsoft collective
communication language", ASPLOS 2023, section 4; its interpreter in MSCCL.
"""

import re
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Deque, Dict, List, NamedTuple, NoReturn, Optional, Sequence, Tuple
from xml.parsers import expat

from ringside.lab.lockstep import Json
from ringside.library import RingsideError

MOST_RANKS, MOST_CHUNKS = 1024, 16384
COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "reduce_scatter": "reduce_scatter",
    "reducescatter": "reduce_scatter",
}
# [type of a step] whether it receives, adds, sends
KINDS = {
    "s": (False, False, True),
    "r": (True, False, False),
    "rcs": (True, False, True),
    "rrc": (True, True, False),
    "rrcs": (True, True, True),
    "rrs": (True, True, True),
    "cpy": (False, False, False),
    "re": (False, True, False),
    "nop": (False, False, False),
}


def fail(text: str) -> NoReturn:
    raise RingsideError(text)


# What a file says.

Place = Tuple[str, int]  # "i", "o" or "s", and the first chunk


@dataclass
class Instruction:
    """A step of a thread block. Without `receives` and `sends` it copies or adds on this GPU, and
    with `count` 0 it only waits."""

    where: str  # "gpu 0, tb 1, step 3 (line 9)"
    count: int = 0  # chunks
    source: Place = ("", 0)
    target: Place = ("", 0)
    receives: bool = False
    adds: bool = False  # to what is at the target
    sends: bool = False  # what is at the source, or what was received
    discards: bool = False  # what arrives is sent on and not kept (rrs)
    after: Optional[Tuple[int, int]] = None  # it waits for this block and step of the same GPU


@dataclass
class Block:
    name: str
    send_to: int
    receive_from: int
    channel: int
    steps: List[Instruction] = field(default_factory=list)


@dataclass
class Program:
    """What a file says. `parts`: the chunks of a rank's block; `chunks`: of the whole buffer."""

    collective: str
    in_place: bool
    chunks: int
    parts: int
    gpus: List[List[Block]] = field(default_factory=list)

    def chunk_of(self, gpu: int, place: Place) -> int:
        """The chunk of the whole buffer at a place of i or o."""
        block_alone = (self.collective, place[0]) in (("all_gather", "i"), ("reduce_scatter", "o"))
        return place[1] + (gpu * self.parts if block_alone else 0)

    def is_same(self, gpu: int, a: Place, b: Place) -> bool:
        """Whether both are the same chunks, also where one is in i and the other in o."""
        return a == b if "s" in (a[0], b[0]) else self.chunk_of(gpu, a) == self.chunk_of(gpu, b)

    def has_input(self, gpu: int, chunk: int) -> bool:
        return self.collective != "all_gather" or chunk // self.parts == gpu


@dataclass
class Element:
    kind: str
    line: int
    path: str  # "gpu 0, tb 1, step 3"
    attributes: Dict[str, str]
    children: List["Element"] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.path} (line {self.line})"

    def text(self, key: str) -> str:
        if key not in self.attributes:
            fail(f"{self.name} has no attribute '{key}'")
        return self.attributes[key]

    def number(self, key: str, least: int, most: int) -> int:
        seen = self.text(key)
        if not re.fullmatch("-?[0-9]{1,9}", seen) or not least <= int(seen) <= most:
            fail(f"{self.name}: {key} must be a number from {least} to {most}, not '{seen}'")
        return int(seen)

    def each(self, kind: str) -> List["Element"]:
        """The elements inside, all of which must be of that kind."""
        for child in self.children:
            if child.kind != kind:
                fail(f"{self.name}: expected <{kind}>, not <{child.kind}> (line {child.line})")
        return self.children


def parse_xml(text: bytes) -> Element:
    """The element that holds all others. By expat, which ElementTree is made of, for it tells the
    line of an element, and stops at a DOCTYPE, whose entities could fill the memory."""
    parser = expat.ParserCreate()
    file = Element("", 0, "", {})
    nested = [file]

    def start(kind: str, attributes: Dict[str, str]) -> None:
        line, above = parser.CurrentLineNumber, nested[-1].path
        if len(nested) > 16:
            fail(f"line {line}: more than 16 elements inside each other")
        numbered_by = "s" if kind == "step" else "id"
        path = (
            kind
            if above == ""
            else "{}{} {}".format(
                "" if above == "algo" else above + ", ",
                kind,
                attributes.get(numbered_by, f"without {numbered_by}"),
            )
        )
        element = Element(kind, line, path, attributes)
        nested[-1].children.append(element)
        nested.append(element)

    def characters(data: str) -> None:
        if data.strip():
            fail(f"line {parser.CurrentLineNumber}: expected '<', not '{data.strip()[0]}'")

    def doctype(*_: object) -> None:
        fail(f"line {parser.CurrentLineNumber}: expected an element, not <!DOCTYPE>")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: nested.pop()
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        fail(f"line {error.lineno}: expected XML, but: {expat.ErrorString(error.code)}")
    except (ValueError, LookupError) as error:  # an encoding that it cannot read
        fail(f"expected XML, but: {error}")
    return file.children[0]


def place(step: Element, buffer: str, offset: str, count: int) -> Place:
    letter = step.text(buffer)
    if letter not in ("i", "o", "s"):
        fail(f"{step.name}: {buffer} must be i, o or s, not '{letter}'")
    return letter, step.number(offset, 0, MOST_CHUNKS - count)


def add_step(step: Element, gpu: int, program: Program, block: Block) -> None:
    number = len(block.steps)
    if step.number("s", 0, number) != number:
        fail(f"{step.name}: expected step {number}")
    kind = step.text("type")
    if kind not in KINDS:
        fail(
            f"{step.name}: type must be one of s, r, rcs, rrc, rrcs, rrs, cpy, re and nop, not "
            f"'{kind}'"
        )
    each = Instruction(step.name, discards=kind == "rrs")
    each.receives, each.adds, each.sends = KINDS[kind]
    block.steps.append(each)
    waits_for = step.number("depid", -1, MOST_CHUNKS) if "depid" in step.attributes else -1
    if waits_for >= 0:
        each.after = (waits_for, step.number("deps", 0, MOST_CHUNKS))
    if kind == "nop":
        return

    each.count = step.number("cnt", 1, program.chunks)
    if each.adds or not each.receives:
        each.source = place(step, "srcbuf", "srcoff", each.count)
    if each.receives or not each.sends:
        each.target = place(step, "dstbuf", "dstoff", each.count)
    if each.receives and block.receive_from < 0:
        fail(f"{step.name}: {kind} receives, but recv of its tb is -1")
    # The two readings of msccl-tools and of its interpreter then agree.
    if each.receives and each.adds and not program.is_same(gpu, each.source, each.target):
        fail(
            f"{step.name}: src and dst of {kind} must be the same place, as what arrives is added "
            "there"
        )
    if each.sends and block.send_to < 0:
        fail(f"{step.name}: {kind} sends, but send of its tb is -1")


# From instructions to messages.

INPUT = -1
NO_MESSAGE, MESSAGE, OVERWRITE = range(3)  # what an instruction may do


class Value(NamedTuple):
    """What a chunk of a GPU held after so many messages had arrived in it, or its input."""

    gpu: int
    chunk: int
    version: int


def check_links(program: Program) -> None:
    """One block sends from a GPU to another on a channel, one receives, and as many messages."""
    owners: Dict[Any, str] = {}
    counts: Dict[Any, List[int]] = {}  # [from, to, channel] sends and receives
    for gpu, blocks in enumerate(program.gpus):
        for block in blocks:
            for each in block.steps:
                if each.after and (
                    each.after[0] >= len(blocks)
                    or each.after[1] >= len(blocks[each.after[0]].steps)
                ):
                    fail(
                        f"{each.where}: there is no step {each.after[1]} of tb {each.after[0]} to "
                        "wait for"
                    )
                for side, does, peer in (
                    (0, each.sends, block.send_to),
                    (1, each.receives, block.receive_from),
                ):
                    if does:
                        link = (peer, gpu, block.channel) if side else (gpu, peer, block.channel)
                        counts.setdefault(link, [0, 0])[side] += 1
                        owner = owners.setdefault((link, side), block.name)
                        if owner != block.name:
                            verb = "receive from" if side else "send to"
                            fail(
                                f"{owner} and {block.name} both {verb} gpu {peer} on channel "
                                f"{block.channel}: only one may"
                            )
    for (start, to, channel), (sends, receives) in sorted(counts.items()):
        if sends != receives:
            fail(
                f"gpu {start} sends {sends} messages to gpu {to} on channel {channel}, which "
                f"expects {receives}"
            )


class Conversion:
    """Executes a program and keeps the messages that it needs."""

    def __init__(self, program: Program):
        check_links(program)
        self.program = program
        gpus, chunks = range(len(program.gpus)), range(program.chunks)
        self.next = [[0] * len(blocks) for blocks in program.gpus]  # [gpu][block] its next step
        # [gpu][chunk] when each message arrived in it, after the input; when the last one was sent
        self.arrivals = [[[-1] for _ in chunks] for _ in gpus]
        self.last_sent = [[0] * program.chunks for _ in gpus]
        # [gpu][chunk] whether something is in it: the output begins empty where i and o differ
        self.readable = [
            [program.in_place and program.has_input(gpu, chunk) for chunk in chunks] for gpu in gpus
        ]
        # [gpu][chunk] what it is a copy of, if something arrived and nothing was added to it
        self.copy_of: List[List[Optional[Value]]] = [[None] * program.chunks for _ in gpus]
        self.scratch: List[Dict[int, Value]] = [{} for _ in gpus]
        # [from, to, channel] what was sent and not yet received, by which instruction
        self.on_the_way: Dict[Any, Deque[Tuple[List[Value], str]]] = {}
        self.awaited: Counter = Counter()  # [gpu, chunk] how much of it is on the way
        self.sends: List[Dict[int, Any]] = [{} for _ in gpus]  # [gpu][step] a message as JSON
        self.receives: List[Dict[int, Any]] = [{} for _ in gpus]

    def run(self) -> List[Dict[str, Any]]:
        """The schedules as JSON. Raises RingsideError with the step that cannot be done."""
        blocks = [
            (gpu, number) for gpu, own in enumerate(self.program.gpus) for number in range(len(own))
        ]
        # First what needs no message, then a message of each block. Two GPUs that exchange chunks
        # both send first: only if nothing else is left to do is a chunk overwritten that is still
        # on the way; its own message takes the same step, or an earlier one.
        while (
            any([self.execute(*block, NO_MESSAGE) for block in blocks])
            or any([self.execute(*block, MESSAGE) for block in blocks])
            or any(self.execute(*block, OVERWRITE) for block in blocks)
        ):
            pass
        for gpu, number in blocks:
            steps = self.program.gpus[gpu][number].steps
            if self.next[gpu][number] < len(steps):
                fail(
                    f"{steps[self.next[gpu][number]].where} never begins: its peer, or the step "
                    "that it waits for, waits as well"
                )
        length = 1 + max((step for sends in self.sends for step in sends), default=-1)
        return [
            {
                "chunks": self.program.chunks,
                "steps": [
                    {
                        **({"send": sends[step]} if step in sends else {}),
                        **({"receive": receives[step]} if step in receives else {}),
                    }
                    for step in range(length)
                ],
            }
            for sends, receives in zip(self.sends, self.receives)
        ]

    def execute(self, gpu: int, number: int, may: int) -> bool:
        """The next step of a block. Returns whether it was possible by what it may do."""
        block, index = self.program.gpus[gpu][number], self.next[gpu][number]
        each = block.steps[index] if index < len(block.steps) else None
        if each is None or (each.after and self.next[gpu][each.after[0]] <= each.after[1]):
            return False
        if each.receives and each.sends and each.target[0] == "s" and may == NO_MESSAGE:
            return False  # it will need one to park()
        if each.receives:
            queue = self.on_the_way.get((block.receive_from, gpu, block.channel))
            if not queue:
                return False
            values, sender = queue[0]
            if len(values) != each.count:
                fail(f"{sender} sends {len(values)} chunks, but {each.where} receives {each.count}")
            if not self.deliver(values, gpu, each, may):
                return False
            queue.popleft()
            self.awaited.subtract(value[:2] for value in values if value.version != INPUT)
        elif each.count and not each.sends:
            if not self.deliver(self.read(gpu, each, each.source), gpu, each, may):
                return False
        if each.sends:
            values = self.read(gpu, each, each.target if each.receives else each.source)
            if values[0].gpu != gpu:
                if may == NO_MESSAGE:
                    return False
                values = self.park(values, gpu, each)
            link = (gpu, block.send_to, block.channel)
            self.on_the_way.setdefault(link, deque()).append((values, each.where))
            self.awaited.update(value[:2] for value in values if value.version != INPUT)
            if each.discards:
                for value in values:
                    self.readable[gpu][value.chunk] = False
        self.next[gpu][number] += 1
        return True

    def first_chunk(self, gpu: int, each: Instruction, place: Place) -> int:
        first = self.program.chunk_of(gpu, place)
        if first + each.count > self.program.chunks:
            fail(
                f"{each.where}: {place[0]}[{place[1] + each.count - 1}] is outside of the buffer "
                f"of {self.program.chunks} chunks (nchunksperloop)"
            )
        return first

    def has_arrived(self, gpu: int, chunk: int) -> bool:
        """Whether the chunk is no longer the input of this rank."""
        return len(self.arrivals[gpu][chunk]) > 1 or not self.program.has_input(gpu, chunk)

    def read(self, gpu: int, each: Instruction, place: Place) -> List[Value]:
        """What is at a place, chunk by chunk."""
        buffer, at = place
        if buffer == "s":
            found = [self.scratch[gpu].get(at + i) for i in range(each.count)]
            if found[0] is None:
                fail(f"{each.where} reads s[{at}], which nothing has written")
            for i, value in enumerate(found):
                start = found[0]._replace(chunk=found[0].chunk + i)
                if (
                    value is None
                    or value[:2] != start[:2]
                    or (INPUT in (value[2], start[2]) and value[2] != start[2])
                ):
                    fail(
                        f"{each.where} reads s[{at}] and s[{at + i}], which do not come from one "
                        "place: divide the step"
                    )
            return found
        first = self.first_chunk(gpu, each, place)
        is_input = buffer == "i" and not self.program.in_place and not each.receives
        for i in range(each.count):
            if not (
                self.program.has_input(gpu, first + i)
                if is_input
                else self.readable[gpu][first + i]
            ):
                fail(f"{each.where} reads {buffer}[{at + i}], which nothing has written")
        chunks = range(first, first + each.count)
        return [Value(gpu, c, INPUT) for c in chunks] if is_input else self.held(gpu, chunks)

    def held(self, gpu: int, chunks: Sequence[int]) -> List[Value]:
        return [Value(gpu, chunk, len(self.arrivals[gpu][chunk]) - 1) for chunk in chunks]

    def deliver(self, values: List[Value], gpu: int, each: Instruction, may: int) -> bool:
        """Writes values to the target of an instruction, or adds them. Returns whether it may."""
        buffer, at = each.target
        if buffer == "s":
            if each.adds:
                fail(f"{each.where} adds to scratch memory, which a schedule does not have")
            if all(value.version < 1 and self.program.has_input(*value[:2]) for value in values):
                values = [value._replace(version=INPUT) for value in values]
            self.scratch[gpu].update(zip(count(at), values))
            return True
        first = self.first_chunk(gpu, each, each.target)
        chunks = range(first, first + each.count)
        # A copy changes nothing where our one buffer has it already: it begins as the input.
        if (
            each.receives
            or each.adds
            or not (
                values == self.held(gpu, chunks)
                or (
                    values[0] == Value(gpu, first, INPUT)
                    and not any(self.has_arrived(gpu, c) for c in chunks)
                )
            )
        ):
            if buffer != "o" and not self.program.in_place and not each.discards:
                fail(f'{each.where} writes to i, but the algorithm is not in place (inplace="1")')
            for i, chunk in enumerate(chunks if each.adds else ()):
                # Out of place o may be empty: then it is added to the input, if that is meant.
                if not self.readable[gpu][chunk] and (
                    not each.receives or each.source[0] != "i" or self.has_arrived(gpu, chunk)
                ):
                    fail(f"{each.where} adds to {buffer}[{at + i}], which nothing has written")
            if may == NO_MESSAGE or (
                may == MESSAGE and any(self.awaited[gpu, chunk] for chunk in chunks)
            ):
                return False
            self.send(values, gpu, first, each)
        for chunk in chunks:
            self.readable[gpu][chunk] = True
        return True

    def send(self, values: List[Value], gpu: int, first: int, each: Instruction) -> None:
        """The message takes the first step that is possible."""
        sender, chunk, version = values[0]
        least, most = 0, float("inf")
        for i, value in enumerate(values):
            arrivals, here = self.arrivals[sender][value.chunk], self.arrivals[gpu][first + i]
            if version != INPUT:
                least = max(least, arrivals[value.version] + 1)
                most = min([most, *arrivals[value.version + 1 : value.version + 2]])
            least = max(least, here[-1] + 1, self.last_sent[gpu][first + i])
        step = next(
            step
            for step in count(least)
            if step > most or (step not in self.sends[sender] and step not in self.receives[gpu])
        )
        if step > most:
            fail(
                f"{each.where} needs what gpu {sender} held in chunk {chunk} earlier: a schedule "
                f"has no scratch memory, and gpu {sender} no longer holds it"
            )
        for i, value in enumerate(values):
            if version != INPUT:
                last = self.last_sent[sender]
                last[value.chunk] = max(last[value.chunk], step)
            self.arrivals[gpu][first + i].append(step)
            self.copy_of[gpu][first + i] = None if each.adds else value
        where = {"first": first, "count": len(values)}
        other = {"input": chunk} if version == INPUT else {"held": chunk} if chunk != first else {}
        self.sends[sender][step] = {"to": gpu, **where, **other}
        self.receives[gpu][step] = {
            "from": sender,
            **where,
            "action": "add" if each.adds else "overwrite",
        }

    def park(self, values: List[Value], gpu: int, each: Instruction) -> List[Value]:
        """A GPU that forwards from s must hold what arrived there. A schedule has no memory for it
        but chunks that are empty so far: of them the first that are free, best those of the same
        number, where it often belongs anyway."""
        size, number = each.count, (each.target if each.receives else each.source)[1]
        places = [values[0].chunk, *range(self.program.chunks - size + 1)]
        place = next((at for at in places if self.copy_of[gpu][at : at + size] == values), None)
        if place is None:
            place = next(
                (
                    at
                    for at in places
                    if not any(
                        self.readable[gpu][chunk]
                        or self.copy_of[gpu][chunk]
                        or self.awaited[gpu, chunk]
                        for chunk in range(at, at + size)
                    )
                ),
                None,
            )
            if place is None:
                fail(
                    f"{each.where} forwards from s[{number}]: a schedule has no scratch memory, "
                    f"and no chunks of gpu {gpu} are empty that could hold it"
                )
            self.send(values, gpu, place, Instruction(each.where))
        kept = self.held(gpu, range(place, place + size))
        self.scratch[gpu].update(zip(count(number), kept))
        return kept


def read_xml(text: bytes, name: str) -> Json:
    """Raises RingsideError with the element that is wrong, what was expected and what was seen.
    Nothing is proved: a file may be well formed and wrong."""
    algo = parse_xml(text)
    if algo.kind != "algo":
        fail(f"line {algo.line}: expected <algo>, not <{algo.kind}>")
    collective = COLLECTIVES.get(algo.text("coll"))
    if collective is None:
        fail(
            f"{algo.name}: coll must be allreduce, allgather, reducescatter or alltoall, not "
            f"'{algo.text('coll')}'"
        )
    in_place = "inplace" in algo.attributes and algo.number("inplace", 0, 1) == 1
    chunks = algo.number("nchunksperloop", 1, MOST_CHUNKS)
    gpus = algo.number("ngpus", 1, MOST_RANKS)
    if collective != "all_reduce" and chunks % gpus != 0:
        fail(f"{algo.name}: nchunksperloop must be a multiple of ngpus, {gpus}, not {chunks}")
    program = Program(collective, in_place, chunks, max(1, chunks // gpus))
    for gpu in algo.each("gpu"):
        number = len(program.gpus)
        if gpu.number("id", 0, gpus - 1) != number:
            fail(f"{gpu.name}: expected gpu {number}")
        blocks: List[Block] = []
        for tb in gpu.each("tb"):
            if tb.number("id", 0, len(blocks)) != len(blocks):
                fail(f"{tb.name}: expected tb {len(blocks)}")
            send_to, receive_from = (tb.number(key, -1, gpus - 1) for key in ("send", "recv"))
            block = Block(tb.name, send_to, receive_from, tb.number("chan", -1, MOST_CHUNKS))
            for step in tb.each("step"):
                add_step(step, number, program, block)
            blocks.append(block)
        program.gpus.append(blocks)
    if len(program.gpus) != gpus:
        fail(f"{algo.name}: ngpus is {gpus}, but there are {len(program.gpus)} elements <gpu>")
    return {
        "collective": collective,
        "algorithm": algo.attributes.get("name", name),
        "ranks": gpus,
        "schedules": Conversion(program).run(),
    }
