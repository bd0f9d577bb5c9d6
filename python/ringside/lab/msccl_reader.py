"""Reads algorithms of Microsoft's MSCCL, as msccl-tools writes them, as schedules.

    <algo name="exchange" coll="allreduce" ngpus="2" nchunksperloop="1" inplace="1">
      <gpu id="0" i_chunks="1" o_chunks="0" s_chunks="0">
        <tb id="0" send="1" recv="1" chan="0">
          <step s="0" type="s" srcbuf="i" srcoff="0" cnt="1" depid="-1" deps="-1" />
          <step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" ... />

A thread block (tb) takes its steps in order; KINDS has their types. It sends to one peer and
receives from one, on a channel; the nth send on a channel is the nth receive. A step waits until
step `deps` of block `depid` is done.

Each GPU sends one message and receives one in a step of our schedules, so a step of many blocks
becomes several. The steps are executed one by one, and each message takes the first step of the
schedules in which its sender holds the data, its receiver has no more use for what it overwrites,
and neither has another message (lockstep.Packing).

The buffers i and o (input, output) become the chunks of our one buffer, which begins as the input;
they are one memory where the algorithm is in place. A schedule has no scratch memory (s): what
arrives there is sent when it is first used. What a GPU forwards from there it keeps in chunks of
its own that are still empty. A file for which there are none, or that needs old data, is refused.

Source of the format: Cowan, Maleki, Musuvathi, Saarikivi and Xiong, "MSCCLang: Microsoft collective
communication language", ASPLOS 2023, section 4; its interpreter in MSCCL.
"""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import DefaultDict, Dict, List, NamedTuple, NoReturn, Optional, Tuple
from xml.parsers import expat

from ringside.lab.lockstep import INPUT, Json, Packing, Value
from ringside.library import RingsideError

MOST_RANKS, MOST_CHUNKS = 1024, 16384
COLLECTIVE_OF = {  # [coll]
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
}


class Kind(NamedTuple):
    """What a step does, in this order."""

    receives: bool = False
    copies: bool = False  # takes what is at its source
    adds: bool = False  # to its target; if it receives, source and target are the same
    sends: bool = False  # what is at its source, or what was received
    keeps: bool = True  # what was received


KINDS = {
    "s": Kind(sends=True),
    "r": Kind(receives=True),
    "rcs": Kind(receives=True, sends=True),
    "rrc": Kind(receives=True, adds=True),
    "rrs": Kind(receives=True, adds=True, sends=True, keeps=False),
    "rrcs": Kind(receives=True, adds=True, sends=True),
    "cpy": Kind(copies=True),
    "re": Kind(copies=True, adds=True),
    "nop": Kind(),  # only waits
}


def fail(text: str) -> NoReturn:
    raise RingsideError(text)


# What a file says.

LEVELS = ("algo", "gpu", "tb", "step", "/step")  # each stands in the one before


class Element(NamedTuple):
    kind: str
    name: str  # "gpu 0, tb 1, step 3 (line 9)"
    attributes: Dict[str, str]

    def fail(self, sentence: str) -> NoReturn:
        fail(f"{self.name}: {sentence}")

    def text(self, key: str) -> str:
        if key not in self.attributes:
            self.fail(f"attribute '{key}' is missing")
        return self.attributes[key]

    def number(self, key: str, least: int, most: int) -> int:
        seen = self.text(key)
        if not re.fullmatch("-?[0-9]{1,9}", seen) or not least <= int(seen) <= most:
            self.fail(f"{key} must be a number from {least} to {most}, not '{seen}'")
        return int(seen)

    def check_turn(self, key: str, turn: int) -> None:
        """Elements are numbered from 0 on."""
        if self.number(key, 0, MOST_CHUNKS) != turn:
            self.fail(f"expected {self.kind} {turn}")


def elements_of(text: bytes) -> List[Element]:
    """In the order of the file. By expat, which ElementTree is made of, for it tells the line of an
    element, and stops at a DOCTYPE, whose entities could fill the memory."""
    parser = expat.ParserCreate()
    found: List[Element] = []
    path: List[str] = []  # "algo", "gpu 0", "tb 1"

    def stop(expected: str, seen: str) -> NoReturn:
        fail(f"line {parser.CurrentLineNumber}: expected {expected}, not {seen}")

    def start(kind: str, attributes: Dict[str, str]) -> None:
        if kind != LEVELS[len(path)]:
            stop(f"<{LEVELS[len(path)]}>", f"<{kind}>")
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


OUR_BUFFER, INPUT_BUFFER, SCRATCH = "the buffer", "the input", "scratch memory"


class Place(NamedTuple):
    """INPUT_BUFFER is a memory where the algorithm is not in place. `first` is a chunk of the whole
    buffer, or of scratch memory."""

    memory: str
    first: int

    def and_next(self, count: int) -> List["Place"]:
        return [Place(self.memory, chunk) for chunk in range(self.first, self.first + count)]


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
    block: Block
    kind: Kind
    after: Tuple[int, int] = (-1, -1)  # it waits for this block and step of the same GPU
    count: int = 0  # chunks
    source: Place = Place("", 0)
    target: Place = Place("", 0)
    sender: Optional["Instruction"] = None  # of what it receives
    sent: List[Value] = field(default_factory=list)  # what it has sent, when it is executed


class Program:
    """What a file says. Raises RingsideError with the element that is wrong, what was expected and
    what was seen."""

    def __init__(self, text: bytes):
        algo, *others = elements_of(text)
        coll = algo.text("coll")
        if coll not in COLLECTIVE_OF:
            known = "allreduce, allgather, reducescatter or alltoall"
            algo.fail(f"coll must be {known}, not '{coll}'")
        self.name, self.collective = algo.attributes.get("name"), COLLECTIVE_OF[coll]
        self.in_place = "inplace" in algo.attributes and algo.number("inplace", 0, 1) == 1
        self.chunks = algo.number("nchunksperloop", 1, MOST_CHUNKS)
        self.size = algo.number("ngpus", 1, MOST_RANKS)
        if self.collective != "all_reduce" and self.chunks % self.size:
            algo.fail(f"nchunksperloop must be a multiple of ngpus, {self.size}, not {self.chunks}")
        self.gpus: List[List[Block]] = []
        # The steps that send on a link, and those that receive.
        self.ends: DefaultDict[Link, Dict[str, List[Instruction]]] = defaultdict(
            lambda: {"send": [], "receive": []}
        )
        add = {"gpu": self.add_gpu, "tb": self.add_block, "step": self.add_step}
        for element in others:
            add[element.kind](element)
        if len(self.gpus) != self.size:
            algo.fail(f"ngpus is {self.size}, but there are {len(self.gpus)} elements <gpu>")
        self.check_links()

    def has_input(self, gpu: int, chunk: int) -> bool:
        """Whether a GPU begins with data in a chunk of the whole buffer."""
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
        block, name = self.gpus[-1][-1], step.text("type")
        step.check_turn("s", len(block.steps))
        if name not in KINDS:
            step.fail(f"type must be one of {', '.join(KINDS)}, not '{name}'")
        kind = KINDS[name]
        each = Instruction(step.name, block, kind)
        block.steps.append(each)
        if "depid" in step.attributes and step.number("depid", -1, MOST_CHUNKS) >= 0:
            each.after = step.number("depid", 0, MOST_CHUNKS), step.number("deps", 0, MOST_CHUNKS)
        if name == "nop":
            return
        each.count = step.number("cnt", 1, self.chunks)
        if kind.adds or not kind.receives:
            each.source = self.place(step, "src", block.gpu, each.count)
        if kind.receives or kind.copies:
            each.target = self.place(step, "dst", block.gpu, each.count)
        if kind.sends:
            self.ends[block.link_out]["send"].append(each)
        if kind.receives:
            self.ends[block.link_in]["receive"].append(each)
        if kind.adds and each.target.memory == SCRATCH:
            step.fail("it adds to scratch memory, which a schedule does not have")
        if kind.adds and kind.receives:  # the readings of msccl-tools and of its interpreter agree
            if each.source.first != each.target.first or each.source.memory == SCRATCH:
                step.fail(f"src and dst of {name} must be one place: what arrives is added there")
        if each.target.memory == INPUT_BUFFER:
            if kind.keeps:
                step.fail('it writes to i, but the algorithm is not in place (inplace="1")')
            each.target = Place(OUR_BUFFER, each.target.first)

    def place(self, step: Element, end: str, gpu: int, count: int) -> Place:
        """What srcbuf and srcoff name, or dstbuf and dstoff."""
        letter, offset = step.text(end + "buf"), step.number(end + "off", 0, MOST_CHUNKS - count)
        if letter not in ("i", "o", "s"):
            step.fail(f"{end}buf must be i, o or s, not '{letter}'")
        if letter == "s":
            return Place(SCRATCH, offset)
        own_block = (self.collective, letter) in (("all_gather", "i"), ("reduce_scatter", "o"))
        first = offset + (gpu * (self.chunks // self.size) if own_block else 0)
        if first + count > self.chunks:
            last = f"{letter}[{offset + count - 1}]"
            step.fail(f"{last} is outside of the buffer of {self.chunks} chunks (nchunksperloop)")
        return Place(INPUT_BUFFER if letter == "i" and not self.in_place else OUR_BUFFER, first)

    def check_links(self) -> None:
        """On a link one block sends, one receives, and the nth send is the nth receive."""
        for (start, to, channel), ends in self.ends.items():
            path = f"from gpu {start} to gpu {to} on channel {channel}"
            sends, receives = ends.values()
            if -1 in (start, to):
                fail(f"{(sends + receives)[0].name} has no peer: send or recv of its tb is -1")
            for verb, steps in ends.items():
                names = list({each.block.name: None for each in steps})
                if len(names) > 1:
                    fail(f"{names[0]} and {names[1]} both {verb} {path}: only one may")
            if len(sends) != len(receives):
                fail(f"{len(sends)} messages are sent {path}, but {len(receives)} are received")
            for sent, received in zip(sends, receives):
                if sent.count != received.count:
                    chunks = f"sends {sent.count} chunks, but {received.name} receives"
                    fail(f"{sent.name} {chunks} {received.count}")
                received.sender = sent


# From instructions to messages.

NO_MESSAGE, MESSAGE, OVERWRITE = range(3)  # what an instruction may do


class Execution:
    """Executes a program and keeps the messages that it needs."""

    def __init__(self, program: Program):
        self.program = program
        self.packing = Packing(program.size, program.chunks)
        # [gpu][place] what is there. Out of place our buffer, the output, counts as empty at first.
        self.contents: List[Dict[Place, Value]] = [{} for _ in program.gpus]
        memory, version = (OUR_BUFFER, 0) if program.in_place else (INPUT_BUFFER, INPUT)
        for gpu, contents in enumerate(self.contents):
            for chunk in range(program.chunks):
                if program.has_input(gpu, chunk):
                    contents[Place(memory, chunk)] = Value(gpu, chunk, version)
        # [gpu][chunk] what a message has brought to our buffer, if nothing was added to it
        self.copies: List[Dict[int, Optional[Value]]] = [{} for _ in program.gpus]
        # [gpu, chunk] how often it was sent and not yet received
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
                    f"{each.name} never begins: its peer, or the step that it waits for, waits too"
                )
        return self.packing.schedules()

    def execute(self, block: Block, may: int) -> bool:
        """The next step of a block. Returns whether it was possible by what it may do."""
        if block.done == len(block.steps):
            return False
        each, blocks = block.steps[block.done], self.program.gpus[block.gpu]
        kind, (other, step) = each.kind, each.after
        if other >= 0 and (other >= len(blocks) or blocks[other].done <= step):
            return False
        if each.sender and not each.sender.sent:
            return False
        values = each.sender.sent if each.sender else self.read(each, each.source)
        if self.need(each, values) > may:
            return False
        if kind.receives:
            self.awaited.subtract(chunks_awaited(values))
        if kind.receives or kind.copies:
            values = self.deliver(each, values)
        if kind.sends:
            each.sent = values if values[0].rank == block.gpu else self.park(each, values)
            self.awaited.update(chunks_awaited(each.sent))
        block.done += 1
        return True

    def read(self, each: Instruction, place: Place) -> List[Value]:
        """What is at a place, chunk by chunk."""
        contents, found = self.contents[each.block.gpu], []
        for at in place.and_next(each.count):
            if at not in contents:
                fail(
                    f"{each.name} reads chunk {at.first} of {at.memory}, which nothing has written"
                )
            found.append(contents[at])
        (rank, chunk, version) = found[0] if found else (0, 0, 0)
        for i, value in enumerate(found):
            is_next = value[:2] == (rank, chunk + i)
            if not is_next or (value.version == INPUT) != (version == INPUT):
                fail(
                    f"{each.name} reads chunks {place.first} and {place.first + i} of "
                    f"{place.memory}, which do not come from one place: divide the step"
                )
        return found

    def held(self, each: Instruction) -> List[Value]:
        """What our buffer holds at the target of a step."""
        return self.packing.held(each.block.gpu, each.target.first, each.count)

    def as_input(self, values: List[Value]) -> List[Value]:
        """The same, but as INPUT where it still is what the GPU began with."""
        if any(each.version > 0 or not self.program.has_input(*each[:2]) for each in values):
            return values
        return [each._replace(version=INPUT) for each in values]

    def changes(self, each: Instruction, values: List[Value]) -> bool:
        """Whether our buffer changes at the target of a step. It begins as the input, and so has
        what a step out of place copies first."""
        is_copy = each.kind.copies and not each.kind.adds
        return not is_copy or self.as_input(values) != self.as_input(self.held(each))

    def need(self, each: Instruction, values: List[Value]) -> int:
        """The least that a step must be allowed to do with values."""
        gpu, kind = each.block.gpu, each.kind
        if each.target.memory != OUR_BUFFER:
            # What a GPU forwards from scratch memory it has to keep.
            forwards = kind.sends and (kind.receives or values[0].rank != gpu)
            return MESSAGE if forwards else NO_MESSAGE
        if kind.adds:
            added_to = self.read(each, each.source if kind.receives else each.target)
            if self.as_input(added_to) != self.as_input(self.held(each)):
                fail(f"{each.name} adds to its input, but its target holds something else")
        if not self.changes(each, values):
            return NO_MESSAGE
        return OVERWRITE if any(self.awaited[value[:2]] for value in self.held(each)) else MESSAGE

    def deliver(self, each: Instruction, values: List[Value]) -> List[Value]:
        """Writes values to the target of a step, or adds them. Returns what is there then."""
        if each.target.memory == SCRATCH:
            values = self.as_input(values)
        else:
            if self.changes(each, values):
                self.send(each, values, each.target.first)
            values = self.held(each)
        for place, value in zip(each.target.and_next(each.count), values):
            self.contents[each.block.gpu][place] = value
            if not each.kind.keeps:
                del self.contents[each.block.gpu][place]
        return values

    def send(self, each: Instruction, values: List[Value], first: int) -> None:
        """A message into the chunks of our buffer from `first` on."""
        gpu, adds = each.block.gpu, each.kind.adds
        if not self.packing.add(values, gpu, first, "add" if adds else "overwrite"):
            sender, chunk, _ = values[0]
            fail(
                f"{each.name} needs what gpu {sender} held in chunk {chunk} earlier: a schedule has "
                f"no scratch memory, and gpu {sender} no longer holds it"
            )
        for chunk, value in enumerate(values, first):
            self.copies[gpu][chunk] = None if adds else value

    def park(self, each: Instruction, values: List[Value]) -> List[Value]:
        """A GPU that forwards from scratch memory must hold what arrived there. A schedule has no
        memory for it but chunks that are empty so far: of them the first that are free, best those
        of the same number, where it often belongs anyway."""
        gpu, size = each.block.gpu, each.count
        place = each.target if each.kind.receives else each.source
        contents, copies = self.contents[gpu], self.copies[gpu]

        def is_free(chunk: int) -> bool:
            in_use = copies.get(chunk) or self.awaited[gpu, chunk]
            return not in_use and Place(OUR_BUFFER, chunk) not in contents

        starts = [values[0].chunk, *range(self.program.chunks - size + 1)]
        runs = [range(start, start + size) for start in starts]
        run = next((run for run in runs if list(map(copies.get, run)) == values), None)
        if run is None:
            run = next((run for run in runs if all(map(is_free, run))), None)
            if run is None:
                fail(
                    f"{each.name} forwards from s[{place.first}]: a schedule has no scratch "
                    f"memory, and no chunks of gpu {gpu} are empty that could hold it"
                )
            self.send(each, values, run.start)
        kept = self.packing.held(gpu, run.start, size)
        contents.update(zip(place.and_next(size), kept))
        return kept


def chunks_awaited(values: List[Value]) -> List[Tuple[int, int]]:
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
