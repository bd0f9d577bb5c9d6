"""Reads algorithms of Microsoft's MSCCL, as msccl-tools writes them, as schedules.

    <algo name="exchange" coll="allreduce" ngpus="2" nchunksperloop="1" inplace="1">
      <gpu id="0" i_chunks="1" o_chunks="0" s_chunks="0">
        <tb id="0" send="1" recv="1" chan="0">
          <step s="0" type="s" srcbuf="i" srcoff="0" cnt="1" depid="-1" deps="-1" />
          <step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" ... />

A thread block (tb) takes its steps in order. It sends to one peer and receives from one, on a
channel; the nth send on a channel is the nth receive. A step waits until step `deps` of block
`depid` is done. KINDS has the types of steps.

Each GPU sends one message and receives one in a step of our schedules, so a step of many blocks
becomes several. The instructions are executed one by one, and each message takes the first step
in which its sender holds the data, its receiver has no more use for what it overwrites, and neither
has another message (lockstep.Packing).

The buffers i and o (input, output) become the chunks of our one buffer, which begins as the input;
they are one memory where the algorithm is in place. A schedule has no scratch memory (s): what
arrives there is sent when it is first used. What a GPU forwards from there it keeps in chunks of
its own that are still empty. A file for which there are none, or that needs old data, is refused.

Source of the format: Cowan, Maleki, Musuvathi, Saarikivi and Xiong, "MSCCLang: Microsoft collective
communication language", ASPLOS 2023, section 4; its interpreter in MSCCL.
"""

import re
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import DefaultDict, Deque, Dict, List, NamedTuple, NoReturn, Optional, Sequence, Tuple
from xml.parsers import expat

from ringside.lab.lockstep import INPUT, Json, Packing, Value
from ringside.library import RingsideError

MOST_RANKS, MOST_CHUNKS = 1024, 16384
COLLECTIVE_OF = {  # [coll]
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "reduce_scatter": "reduce_scatter",
    "reducescatter": "reduce_scatter",
}


class Kind(NamedTuple):
    """What a step does, in this order."""

    receives: bool = False
    copies: bool = False  # takes what is at its source
    adds: bool = False  # to its target, which of what is received is its source, too
    sends: bool = False  # what is at its source, or what was received
    keeps: bool = True  # what was received


KINDS = {
    "s": Kind(sends=True),
    "r": Kind(receives=True),
    "rcs": Kind(receives=True, sends=True),
    "rrc": Kind(receives=True, adds=True),
    "rrcs": Kind(receives=True, adds=True, sends=True),
    "rrs": Kind(receives=True, adds=True, sends=True, keeps=False),
    "cpy": Kind(copies=True),
    "re": Kind(copies=True, adds=True),
    "nop": Kind(),  # only waits
}


def fail(text: str) -> NoReturn:
    raise RingsideError(text)


# What a file says.

LEVELS = ("algo", "gpu", "tb", "step")  # each stands in the one before


class Element(NamedTuple):
    kind: str
    name: str  # "gpu 0, tb 1, step 3 (line 9)"
    attributes: Dict[str, str]

    def text(self, key: str) -> str:
        if key not in self.attributes:
            fail(f"{self.name} has no attribute '{key}'")
        return self.attributes[key]

    def number(self, key: str, least: int, most: int, missing: Optional[int] = None) -> int:
        """`missing`: what stands for an attribute that may be left out."""
        if missing is not None and key not in self.attributes:
            return missing
        seen = self.text(key)
        if not re.fullmatch("-?[0-9]{1,9}", seen) or not least <= int(seen) <= most:
            fail(f"{self.name}: {key} must be a number from {least} to {most}, not '{seen}'")
        return int(seen)

    def check_turn(self, key: str, number: int) -> None:
        """Elements are numbered from 0 on."""
        if self.number(key, 0, MOST_CHUNKS) != number:
            fail(f"{self.name}: expected {self.kind} {number}")


def elements_of(text: bytes) -> List[Element]:
    """In the order of the file. By expat, which ElementTree is made of, for it tells the line of an
    element, and stops at a DOCTYPE, whose entities could fill the memory."""
    parser = expat.ParserCreate()
    found: List[Element] = []
    path: List[str] = []  # "algo", "gpu 0", "tb 1"

    def stop(expected: str, seen: str) -> NoReturn:
        fail(f"line {parser.CurrentLineNumber}: expected {expected}, not {seen}")

    def start(kind: str, attributes: Dict[str, str]) -> None:
        expected = LEVELS[len(path)] if len(path) < len(LEVELS) else "/step"
        if kind != expected:
            stop(f"<{expected}>", f"<{kind}>")
        key = "s" if kind == "step" else "id"
        path.append(f"{kind} {attributes.get(key, f'without {key}')}" if path else kind)
        name = f"{', '.join(path[1:] or path)} (line {parser.CurrentLineNumber})"
        found.append(Element(kind, name, attributes))

    def characters(data: str) -> None:
        if data.strip():
            stop("'<'", f"'{data.strip()[0]}'")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: path.pop()
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = lambda *_: stop("an element", "<!DOCTYPE>")
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        fail(f"line {error.lineno}: expected XML, but: {expat.ErrorString(error.code)}")
    except (ValueError, LookupError) as error:  # an encoding that it cannot read
        fail(f"expected XML, but: {error}")
    return found


class Place(NamedTuple):
    """The first of some chunks; in our buffer, and in the input, it is one of the whole buffer."""

    memory: str  # OUR_BUFFER, INPUT_BUFFER where that is another, or SCRATCH
    first: int

    def and_next(self, count: int) -> List["Place"]:
        return [Place(self.memory, chunk) for chunk in range(self.first, self.first + count)]


OUR_BUFFER, INPUT_BUFFER, SCRATCH = "the buffer", "the input", "scratch memory"
Link = Tuple[int, int, int]  # from a GPU, to a GPU, on a channel


@dataclass
class Block:
    name: str
    gpu: int
    link_out: Link
    link_in: Link
    steps: List["Instruction"] = field(default_factory=list)
    done: int = 0  # steps that have been executed


@dataclass
class Instruction:
    """A step of a thread block."""

    name: str
    kind: Kind
    block: Block
    after: Optional[Tuple[int, int]]  # it waits for this block and step of the same GPU
    count: int = 0  # chunks
    source: Place = Place("", 0)
    target: Place = Place("", 0)


class Program:
    """What a file says. Raises RingsideError with the element that is wrong, what was expected and
    what was seen."""

    def __init__(self, text: bytes):
        algo, *others = elements_of(text)
        self.name = algo.attributes.get("name")
        self.collective = COLLECTIVE_OF.get(algo.text("coll"), "")
        if not self.collective:
            fail(
                f"{algo.name}: coll must be allreduce, allgather, reducescatter or alltoall, not "
                f"'{algo.text('coll')}'"
            )
        self.in_place = algo.number("inplace", 0, 1, missing=0) == 1
        self.chunks = algo.number("nchunksperloop", 1, MOST_CHUNKS)
        self.size = algo.number("ngpus", 1, MOST_RANKS)
        if self.collective != "all_reduce" and self.chunks % self.size:
            fail(
                f"{algo.name}: nchunksperloop must be a multiple of ngpus, {self.size}, not "
                f"{self.chunks}"
            )
        self.gpus: List[List[Block]] = []
        for element in others:
            {"gpu": self.add_gpu, "tb": self.add_block, "step": self.add_step}[element.kind](
                element
            )
        if len(self.gpus) != self.size:
            fail(
                f"{algo.name}: ngpus is {self.size}, but there are {len(self.gpus)} elements <gpu>"
            )
        self.check_links()

    def has_input(self, gpu: int, chunk: int) -> bool:
        return self.collective != "all_gather" or chunk // (self.chunks // self.size) == gpu

    def add_gpu(self, gpu: Element) -> None:
        gpu.check_turn("id", len(self.gpus))
        self.gpus.append([])

    def add_block(self, tb: Element) -> None:
        gpu, blocks = len(self.gpus) - 1, self.gpus[-1]
        tb.check_turn("id", len(blocks))
        to, source = (tb.number(key, -1, self.size - 1) for key in ("send", "recv"))
        channel = tb.number("chan", -1, MOST_CHUNKS)
        blocks.append(Block(tb.name, gpu, (gpu, to, channel), (source, gpu, channel)))

    def add_step(self, step: Element) -> None:
        block = self.gpus[-1][-1]
        step.check_turn("s", len(block.steps))
        kind = KINDS.get(step.text("type"))
        if kind is None:
            fail(f"{step.name}: type must be one of {', '.join(KINDS)}, not '{step.text('type')}'")
        other = step.number("depid", -1, MOST_CHUNKS, missing=-1)
        after = (other, step.number("deps", 0, MOST_CHUNKS)) if other >= 0 else None
        each = Instruction(step.name, kind, block, after)
        block.steps.append(each)
        if step.text("type") == "nop":
            return
        each.count = step.number("cnt", 1, self.chunks)
        if kind.adds or not kind.receives:
            each.source = self.place(step, "src", block.gpu, each.count)
        if kind.receives or kind.copies:
            each.target = self.place(step, "dst", block.gpu, each.count)
        if kind.receives and kind.adds:
            # The two readings of msccl-tools and of its interpreter then agree.
            is_scratch = SCRATCH in (each.source.memory, each.target.memory)
            if each.source.first != each.target.first or is_scratch and each.source != each.target:
                fail(
                    f"{step.name}: src and dst of {step.text('type')} must be the same place, as "
                    "what arrives is added there"
                )
        if kind.adds and each.target.memory == SCRATCH:
            fail(f"{step.name} adds to scratch memory, which a schedule does not have")
        if each.target.memory == INPUT_BUFFER and kind.keeps:
            fail(f'{step.name} writes to i, but the algorithm is not in place (inplace="1")')

    def place(self, step: Element, end: str, gpu: int, count: int) -> Place:
        """What srcbuf and srcoff name, or dstbuf and dstoff."""
        letter, offset = step.text(end + "buf"), step.number(end + "off", 0, MOST_CHUNKS - count)
        if letter not in ("i", "o", "s"):
            fail(f"{step.name}: {end}buf must be i, o or s, not '{letter}'")
        if letter == "s":
            return Place(SCRATCH, offset)
        own_block = (self.collective, letter) in (("all_gather", "i"), ("reduce_scatter", "o"))
        first = offset + (gpu * (self.chunks // self.size) if own_block else 0)
        if first + count > self.chunks:
            fail(
                f"{step.name}: {letter}[{offset + count - 1}] is outside of the buffer of "
                f"{self.chunks} chunks (nchunksperloop)"
            )
        return Place(INPUT_BUFFER if letter == "i" and not self.in_place else OUR_BUFFER, first)

    def check_links(self) -> None:
        """On a link one block sends, one receives, and the nth send is the nth receive."""
        steps = [each for blocks in self.gpus for block in blocks for each in block.steps]
        sends, receives = defaultdict(list), defaultdict(list)
        for each in steps:
            if each.kind.sends:
                sends[each.block.link_out].append(each)
            if each.kind.receives:
                receives[each.block.link_in].append(each)
        for link in {**sends, **receives}:
            here, there = sends[link], receives[link]
            path = f"from gpu {link[0]} to gpu {link[1]} on channel {link[2]}"
            if -1 in link[:2]:
                fail(f"{(here + there)[0].name} has no peer: send or recv of its tb is -1")
            for ends, does in (here, "send"), (there, "receive"):
                for other in ends:
                    if other.block is not ends[0].block:
                        fail(f"{ends[0].block.name} and {other.block.name} both {does} {path}")
            if len(here) != len(there):
                fail(f"{len(here)} messages are sent {path}, but {len(there)} received")
            for one, other in zip(here, there):
                if one.count != other.count:
                    fail(
                        f"{one.name} sends {one.count} chunks, but {other.name} receives "
                        f"{other.count}"
                    )


# From instructions to messages.

NO_MESSAGE, MESSAGE, OVERWRITE = range(3)  # what an instruction may do


class Execution:
    """Executes a program and keeps the messages that it needs."""

    def __init__(self, program: Program):
        self.program = program
        self.packing = Packing(program.size, program.chunks)
        # [gpu][place] what is there. Out of place our buffer, the output, counts as empty at first.
        memory, version = (OUR_BUFFER, 0) if program.in_place else (INPUT_BUFFER, INPUT)
        self.contents: List[Dict[Place, Value]] = [{} for _ in program.gpus]
        for gpu, contents in enumerate(self.contents):
            for chunk in range(program.chunks):
                if program.has_input(gpu, chunk):
                    contents[Place(memory, chunk)] = Value(gpu, chunk, version)
        # [gpu][chunk] what a message has brought to our buffer, if nothing was added to it
        self.copies: List[Dict[int, Value]] = [{} for _ in program.gpus]
        # What was sent and not yet received, and [gpu, chunk] in how many of these messages it is.
        self.on_the_way: DefaultDict[Link, Deque[List[Value]]] = defaultdict(deque)
        self.awaited: Counter[Tuple[int, int]] = Counter()

    def run(self) -> List[Json]:
        """The schedules. Raises RingsideError with the step that cannot be done."""
        blocks = [block for own in self.program.gpus for block in own]
        # First what needs no message, then a message of each block. Two GPUs that exchange chunks
        # both send first: only if nothing else is left to do is a chunk overwritten that is still
        # on the way; its own message takes the same step, or an earlier one.
        while (
            any([self.execute(block, NO_MESSAGE) for block in blocks])
            or any([self.execute(block, MESSAGE) for block in blocks])
            or any(self.execute(block, OVERWRITE) for block in blocks)
        ):
            pass
        for block in blocks:
            for each in block.steps[block.done :]:
                fail(
                    f"{each.name} never begins: its peer, or the step that it waits for, waits as "
                    "well"
                )
        return self.packing.schedules()

    def is_ready(self, each: Instruction) -> bool:
        """Whether what it receives is sent, and the step that it waits for is done."""
        blocks = self.program.gpus[each.block.gpu]
        if each.kind.receives and not self.on_the_way[each.block.link_in]:
            return False
        if each.after is None:
            return True
        block, step = each.after
        return block < len(blocks) and blocks[block].done > step

    def execute(self, block: Block, may: int) -> bool:
        """The next step of a block. Returns whether it was possible by what it may do."""
        each = block.steps[block.done] if block.done < len(block.steps) else None
        if each is None or not self.is_ready(each):
            return False
        kind, values = each.kind, self.taken(each)
        # What a GPU forwards from scratch memory it has to keep, for which it needs a message.
        if kind.sends and may == NO_MESSAGE:
            if each.target.memory == SCRATCH if kind.receives else values[0].rank != block.gpu:
                return False
        if kind.receives or kind.copies:
            delivered = self.deliver(values, each, may)
            if delivered is None:
                return False
            values = delivered
        if kind.receives:
            self.awaited.subtract(chunks_awaited(self.on_the_way[block.link_in].popleft()))
        if kind.sends:
            if values[0].rank != block.gpu:
                values = self.park(values, each)
            self.on_the_way[block.link_out].append(values)
            self.awaited.update(chunks_awaited(values))
        block.done += 1
        return True

    def taken(self, each: Instruction) -> List[Value]:
        """What an instruction receives, or what is at its source."""
        if each.kind.receives:
            return self.on_the_way[each.block.link_in][0]
        return self.read(each, each.source)

    def read(self, each: Instruction, place: Place) -> List[Value]:
        """What is at a place, chunk by chunk."""
        contents, found = self.contents[each.block.gpu], []
        for at in place.and_next(each.count):
            if at not in contents:
                fail(
                    f"{each.name} reads chunk {at.first} of {at.memory}, which nothing has written"
                )
            found.append(contents[at])
            (rank, chunk, version), value = found[0], found[-1]
            if value[:2] != (rank, chunk + len(found) - 1) or (
                INPUT in (version, value.version) and version != value.version
            ):
                fail(
                    f"{each.name} reads chunks {place.first} and {at.first} of {at.memory}, which "
                    "do not come from one place: divide the step"
                )
        return found

    def as_input(self, values: List[Value]) -> List[Value]:
        """Values that are still the input of their GPU are the INPUT."""
        if any(each.version > 0 or not self.program.has_input(*each[:2]) for each in values):
            return values
        return [each._replace(version=INPUT) for each in values]

    def deliver(self, values: List[Value], each: Instruction, may: int) -> Optional[List[Value]]:
        """Writes values to the target of an instruction, or adds them. Returns what is there then,
        or None if it may not yet."""
        gpu, kind, first = each.block.gpu, each.kind, each.target.first
        if each.target.memory == SCRATCH:
            values = self.as_input(values)
            self.contents[gpu].update(zip(each.target.and_next(each.count), values))
            return values
        held = self.packing.held(gpu, first, each.count)
        if kind.adds:
            addends = self.read(each, each.source if kind.receives else each.target)
            if self.as_input(addends) != self.as_input(held):
                fail(f"{each.name} adds to its input, but writes to what holds something else")
        # A copy changes nothing where our buffer has it already: it begins as the input.
        if kind.receives or kind.adds or self.as_input(values) != self.as_input(held):
            awaited = any(self.awaited[value[:2]] for value in held)
            if may == NO_MESSAGE or (may == MESSAGE and awaited):
                return None
            self.send(values, each, first)
            held = self.packing.held(gpu, first, each.count)
        for value in held:
            if kind.keeps:
                self.contents[gpu][Place(OUR_BUFFER, value.chunk)] = value
            else:
                self.contents[gpu].pop(Place(OUR_BUFFER, value.chunk), None)
        return held

    def send(self, values: List[Value], each: Instruction, first: int) -> None:
        """A message into chunks of our buffer from `first` on."""
        gpu, adds = each.block.gpu, each.kind.adds
        if not self.packing.add(values, gpu, first, "add" if adds else "overwrite"):
            sender, chunk, _ = values[0]
            fail(
                f"{each.name} needs what gpu {sender} held in chunk {chunk} earlier: a schedule has "
                f"no scratch memory, and gpu {sender} no longer holds it"
            )
        for chunk, value in enumerate(values, first):
            if adds:
                self.copies[gpu].pop(chunk, None)
            else:
                self.copies[gpu][chunk] = value

    def park(self, values: List[Value], each: Instruction) -> List[Value]:
        """A GPU that forwards from scratch memory must hold what arrived there. A schedule has no
        memory for it but chunks that are empty so far: of them the first that are free, best those
        of the same number, where it often belongs anyway."""
        gpu, size = each.block.gpu, len(values)
        place = each.target if each.kind.receives else each.source
        contents, copies = self.contents[gpu], self.copies[gpu]

        def is_free(chunk: int) -> bool:
            in_use = chunk in copies or self.awaited[gpu, chunk]
            return not in_use and Place(OUR_BUFFER, chunk) not in contents

        starts = [values[0].chunk, *range(self.program.chunks - size + 1)]
        runs = [range(start, start + size) for start in starts]
        run = next((run for run in runs if [copies.get(chunk) for chunk in run] == values), None)
        if run is None:
            run = next((run for run in runs if all(map(is_free, run))), None)
            if run is None:
                fail(
                    f"{each.name} forwards from s[{place.first}]: a schedule has no scratch "
                    f"memory, and no chunks of gpu {gpu} are empty that could hold it"
                )
            self.send(values, each, run.start)
        kept = self.packing.held(gpu, run.start, size)
        contents.update(zip(place.and_next(size), kept))
        return kept


def chunks_awaited(values: Sequence[Value]) -> List[Tuple[int, int]]:
    """The chunks that a message must find unchanged."""
    return [value[:2] for value in values if value.version != INPUT]


def read_xml(text: bytes, name: str) -> Json:
    """An algorithm as data, called `name` if the file does not say. Raises RingsideError with what
    is wrong. Nothing is proved: a file may be well formed and wrong."""
    program = Program(text)
    return {
        "collective": program.collective,
        "algorithm": name if program.name is None else program.name,
        "ranks": program.size,
        "schedules": Execution(program).run(),
    }
