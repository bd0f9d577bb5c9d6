"""Flight records: what the recorders of PyTorch and of Ringside wrote of a job's last calls, in one
form.

PyTorch writes a file for each rank when its watchdog gives up (nccl_trace_rank_3), or at any time
with torch._C._distributed_c10d._dump_nccl_trace() or, of gloo, _dump_fr_trace(): a pickle, or JSON
by their _json forms. A rank's number is at the end of its file's name. Source of the format:
torch/csrc/distributed/c10d/FlightRecorder.hpp, version 2.10 of its records. Ringside writes
RANK.flight (collectives/diagnostics/flight_recorder.hpp).

A folder may hold files of several jobs: the one whose calls are the latest counts. Its records name
its size, and its ranks make a call of one number within the time that they wait for each other.
"""

import gzip
import io
import json
import pickle
import re
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Iterable, List, NoReturn, Optional, Tuple

from ringside.library import RingsideError

NAME = re.compile(r"(?:.*\D)?(\d{1,7})(?:\.(?:json|pickle|pkl))?(?:\.gz)?")
CLAIMS_TO_BE_ONE = re.compile(r"trace|rank|flight")  # a name: what is in such a file must be one
MOST_BYTES = 1 << 30  # of a file, unpacked
MOST_RANKS = 1 << 20
SECOND = 10**9  # in the records' ns


class NotARecord(Exception):
    """A file is not a flight record. Its text says where in the file, and why."""


@dataclass
class Call:
    """As `ringside postmortem` reads it from JSON. `count`: elements of the whole buffer. A message
    (collective "send") goes from the group's rank `root` to its rank `peer`."""

    number: int
    collective: str
    count: int = 0
    type: str = "uint8"
    label: str = ""
    ended: bool = False
    began_ns: int = 0  # since 1970
    root: int = 0
    peer: int = 0
    waiting_for: int = -1  # the group's rank whose message it lacks; -1: unknown

    def __str__(self) -> str:
        label = f" for {self.label}" if self.label else ""
        if self.collective == "send":
            return f"send/recv of {self.count} {self.type}{label}"
        data = "" if self.collective == "barrier" else f" of {self.count} {self.type}"
        return self.collective + data + label


@dataclass
class Flight:
    """The calls of one rank in one group, in their order. Ranks count within the group; its name
    ends with its ranks in the job, "mesh_tp@0,2". The group of all ranks has no name."""

    rank: int
    size: int
    group: str = ""
    calls: List[Call] = field(default_factory=list)

    def in_job(self, rank: int) -> int:
        """The number in the job of a rank of this group."""
        ranks = ranks_in(self.group.partition("@")[2])
        return ranks[rank] if rank < len(ranks) else rank


@dataclass
class Record:
    """A file. `content` is what PyTorch wrote, or the Flight of Ringside's recorder."""

    file: Path
    rank: int  # of the job
    size: Optional[int]  # of the job; None: the record does not say
    content: Any
    # When its calls began, in ns, by group and number: two records may share some.
    times: Dict[Tuple[str, int], int] = field(default_factory=dict)
    most_apart: int = 600 * SECOND  # by how much the times of ranks of one job may differ

    def ended(self) -> int:
        return max(self.times.values(), default=0)

    def began(self) -> int:
        return min(self.times.values(), default=0)


@dataclass
class Folder:
    """What read_folder() found."""

    flights: List[Flight]  # of one job, in the order of groups and ranks
    size: int  # of the job
    left_out: List[str]  # a sentence about each file that is none of its records


# ---- Pickles

DATA = (
    pickle.PROTO
    + pickle.FRAME
    + pickle.MARK
    + pickle.STOP
    + pickle.NONE
    + pickle.NEWTRUE
    + pickle.NEWFALSE
    + pickle.BININT
    + pickle.BININT1
    + pickle.BININT2
    + pickle.LONG1
    + pickle.BINFLOAT
    + pickle.BINUNICODE
    + pickle.SHORT_BINUNICODE
    + pickle.EMPTY_DICT
    + pickle.EMPTY_LIST
    + pickle.EMPTY_TUPLE
    + pickle.TUPLE
    + pickle.TUPLE1
    + pickle.TUPLE2
    + pickle.TUPLE3
    + pickle.APPEND
    + pickle.APPENDS
    + pickle.SETITEM
    + pickle.SETITEMS
    + pickle.BINPUT
    + pickle.LONG_BINPUT
    + pickle.MEMOIZE
    + pickle.BINGET
    + pickle.LONG_BINGET
)


class Opcodes(dict):
    """The functions of the opcodes in DATA. Every other opcode is refused."""

    def __missing__(self, opcode: int) -> NoReturn:
        raise pickle.UnpicklingError(
            f"it has the opcode {opcode:#04x}, and flight records have data alone"
        )


class DataUnpickler(pickle._Unpickler):  # type: ignore[name-defined]
    """Makes dictionaries, lists, tuples, texts and numbers, and nothing else. A pickle may name
    functions to call; one that does is refused, so reading a file runs nothing. It is the Unpickler
    that is written in Python: the one in C reserves memory for any index that a file names."""

    dispatch = Opcodes(
        {
            opcode: pickle._Unpickler.dispatch[opcode]  # type: ignore[attr-defined]
            for opcode in DATA
        }
    )
    dispatch[pickle.FRAME[0]] = lambda self: self.read(8)  # its length, which needs no attention

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to an object outside of it")


def read_pickle(data: bytes) -> Any:
    file = io.BytesIO(data)
    try:
        return DataUnpickler(file).load()
    except (EOFError, struct.error):
        why = "it is cut off"
    except pickle.UnpicklingError as error:
        why = str(error)
    except UnicodeDecodeError:
        why = "a text is not UTF-8"
    except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError):
        whole = file.tell() < len(data)
        why = "its opcodes do not fit together" if whole else "it is cut off"
    raise NotARecord(f"not a pickle of data, at byte {file.tell()}: {why}")


# ---- Files


def unpacked(data: bytes, name: str) -> bytes:
    """The content of a compressed file; other files are as they are."""
    if not data.startswith(b"\x1f\x8b"):
        if name.endswith(".gz"):
            raise NotARecord(
                "its name ends in .gz, but at byte 0 there is no mark of gzip: rename "
                "it without .gz"
            )
        return data
    file = io.BytesIO(data)
    try:
        content = gzip.GzipFile(fileobj=file).read(MOST_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise NotARecord(f"not gzip that can be unpacked, near byte {file.tell()}: {error}")
    if len(content) > MOST_BYTES:
        raise NotARecord(f"it unpacks to more than {MOST_BYTES >> 30} GiB")
    return content


def read_data(file: Path) -> Any:
    """What PyTorch wrote: a pickle or JSON."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise NotARecord(f"it has more than {MOST_BYTES >> 30} GiB")
        data = unpacked(file.read_bytes(), file.name)
    except OSError as error:
        raise NotARecord(f"cannot read it: {error.strerror}")
    if data.startswith(b"\x80"):
        return read_pickle(data)
    if not data.lstrip().startswith(b"{"):
        raise NotARecord("neither a pickle nor JSON, at byte 0")
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise NotARecord(f"not JSON, in line {error.lineno}: {error.msg}")
    except UnicodeDecodeError as error:
        raise NotARecord(f"not JSON, at byte {error.start}: it is not UTF-8")
    except RecursionError:
        raise NotARecord("not a record in JSON: its lists are too deep")


def may_be_one(file: Path) -> bool:
    """Whether a file that does not claim to be a record begins as one."""
    try:
        with open(file, "rb") as opened:
            return opened.read(2).startswith((b"\x80", b"{", b"\x1f\x8b"))
    except OSError:
        return False


# ---- Values of a record


def get(values: Any, key: Any, kind: Any, place: str) -> Any:
    """values[key], which must be of a type. `place` ends in a space: "entry 3, "."""
    try:
        value = values[key]
    except (LookupError, TypeError):
        raise NotARecord(f"{place}{key} is missing")
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise NotARecord(f"{place}{key} is of another type: {type(value).__name__}")
    return value


def integer(value: Any, place: str) -> int:
    """Numbers are numbers in a pickle and in some versions texts in JSON."""
    try:
        number = 0 if value is None else int(value)
    except (TypeError, ValueError, OverflowError):
        raise NotARecord(f"{place} is no whole number")
    if not -1 << 63 <= number < 1 << 63:
        raise NotARecord(f"{place} is no number of 64 bits")
    return number


def ranks_in(text: str) -> List[int]:
    """ "[0, 2, 3]" """
    return [int(digits) for digits in re.findall(r"\d{1,7}", text)]


def by_text(values: Any) -> Dict[str, Any]:
    """A dictionary whose keys may be numbers, by their texts."""
    if not isinstance(values, dict):
        return {}
    return {str(key): value for key, value in values.items() if isinstance(key, (str, int))}


# ---- Calls of PyTorch

COLLECTIVES = {  # by the beginning of a name without its backend: "all_gather_into_tensor_coalesced"
    "all_reduce_barrier": "barrier",
    "barrier": "barrier",
    "all_reduce": "all_reduce",
    "allreduce": "all_reduce",
    "all_gather": "all_gather",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}

TYPES = {
    "Float": "fp32",
    "Double": "fp64",
    "Int": "int32",
    "Long": "int64",
    "Half": "fp16",
    "BFloat16": "bf16",
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Bool": "bool",
}

MESSAGE = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})")  # "send 0->1", "recv 1<-0"


def collective_of(name: str) -> Optional[str]:
    name = name.lstrip("_")
    return next((COLLECTIVES[each] for each in COLLECTIVES if name.startswith(each)), None)


def elements_of(entry: Any, key: str, place: str) -> int:
    elements = 0
    for shape in get(entry, key, (list, tuple), place):
        product = 1
        for extent in shape if isinstance(shape, (list, tuple)) else [shape]:
            product *= integer(extent, f"{place}{key}")
        elements += product
    if not 0 <= elements < 1 << 63:
        raise NotARecord(f"{place}{key} is no size of a tensor")
    return elements


def count_of(collective: str, entry: Any, ranks: int, place: str) -> int:
    """Of the whole buffer. Where only the root has it, from a block."""
    into = elements_of(entry, "input_sizes", place)
    out = elements_of(entry, "output_sizes", place)
    if collective == "barrier":
        return 0
    if collective in ("gather", "scatter"):
        return (into if collective == "gather" else out) * ranks
    return out if collective == "all_gather" else into


def call_of(entry: Any, ranks: int, completed: int, place: str) -> Call:
    """`ranks`: of its group. `completed`: the number of the group's last call that had ended."""
    full_name = get(entry, "profiling_name", str, place)
    name = full_name[full_name.find(":") + 1 :]
    types = get(entry, "input_dtypes", (list, tuple), place)
    type_name = get(types, 0, str, f"{place}input_dtypes ") if types else "Byte"
    label = "" if type_name in TYPES else f"elements of the type {type_name}"
    number = integer(entry.get("collective_seq_id"), f"{place}collective_seq_id")
    call = Call(
        number,
        collective_of(name) or "barrier",
        type=TYPES.get(type_name, "uint8"),
        began_ns=integer(entry.get("time_created_ns"), f"{place}time_created_ns"),
        ended=entry.get("state") == "completed" or entry.get("retired") is True,
    )
    message = MESSAGE.search(name)
    if message:
        own, peer = int(message[2]), int(message[3])
        call.collective, call.waiting_for = "send", peer
        call.number = integer(entry.get("p2p_seq_id"), f"{place}p2p_seq_id")
        call.root, call.peer = (own, peer) if message[1] == "send" else (peer, own)
    else:
        call.ended = call.ended or number <= completed
        label = label if collective_of(name) else name
    if call.number < 0:
        raise NotARecord(f"{place}the number of its call is negative")
    call.label = label
    call.count = count_of(call.collective, entry, ranks, place)
    return call


def entries_of(content: Any) -> List[Any]:
    entries = get(content, "entries", (list, tuple), "")
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise NotARecord(f"entry {i} is of another type: {type(entry).__name__}")
    return list(entries)


def group_of(entry: Any, place: str) -> Tuple[str, str]:
    """The name of an entry's group, a number or a hash, and what it is for: "default_pg"."""
    group = get(entry, "process_group", (list, tuple), place)
    place += "process_group "
    return get(group, 0, str, place), get(group, 1, str, place)


def configured_ranks(content: Any, name: str) -> Optional[List[int]]:
    """The ranks of a group as the record has them. One of gloo does not."""
    config = by_text(content.get("pg_config")).get(name) if name else None
    return ranks_in(get(config, "ranks", str, f"pg_config {name}, ")) if config else None


def size_of(content: Any) -> Optional[int]:
    """The size of the job, by the group of all ranks."""
    for config in by_text(content.get("pg_config")).values():
        if isinstance(config, dict) and config.get("desc") == "default_pg":
            return len(ranks_in(get(config, "ranks", str, "pg_config, "))) or None
    return None


def torch_record(file: Path) -> Record:
    content = read_data(file)
    rank = int(NAME.fullmatch(file.name)[1])  # type: ignore[index]
    record = Record(file, rank, None, content)
    if not isinstance(content, dict):
        raise NotARecord(f"it is of another type: {type(content).__name__}")
    waits = []
    for i, entry in enumerate(entries_of(content)):
        name = get(entry, "profiling_name", str, f"entry {i}, ")
        if not MESSAGE.search(name) and not entry.get("is_p2p"):
            number = integer(entry.get("collective_seq_id"), f"entry {i}, collective_seq_id")
            record.times[group_of(entry, f"entry {i}, ")[0], number] = integer(
                entry.get("time_created_ns"), f"entry {i}, time_created_ns"
            )
        waits.append(integer(entry.get("timeout_ms"), f"entry {i}, timeout_ms") * SECOND // 1000)
    record.most_apart = min(max(waits, default=0), 3600 * SECOND) or record.most_apart
    record.size = size_of(content)
    if rank >= min(record.size or MOST_RANKS, MOST_RANKS):
        raise NotARecord(
            f"its name ends in {rank}, and its job has {record.size} ranks: end it in "
            "the number of its rank"
        )
    return record


def groups_of(records: Iterable[Record]) -> Dict[str, List[int]]:
    """The ranks of each group of PyTorch. Where no record has them: those that called in it."""
    groups: Dict[str, set] = {}
    for record in records:
        for i, entry in enumerate(record.content["entries"]):
            name = group_of(entry, f"entry {i}, ")[0]
            if name not in groups or record.rank not in groups[name]:
                groups.setdefault(name, set()).update(
                    configured_ranks(record.content, name) or [record.rank]
                )
    return {name: sorted(ranks) for name, ranks in groups.items()}


def torch_flights(record: Record, groups: Dict[str, List[int]], size: int) -> List[Flight]:
    """One for each group of a record. A call's operation and algorithm are not in it."""
    flights: Dict[str, Flight] = {}
    status = by_text(record.content.get("pg_status"))
    for i, entry in enumerate(record.content["entries"]):
        place = f"entry {i}, "
        name, about = group_of(entry, place)
        if entry["profiling_name"].endswith(":coalesced"):
            continue  # the bracket around messages that have entries of their own
        rank, ranks, group = record.rank, range(size), ""
        if about != "default_pg":
            ranks = groups[name]
            if record.rank not in ranks:
                raise NotARecord(f"{place}rank {record.rank} does not belong to its group {name}")
            rank = ranks.index(record.rank)
            named = about if about not in ("", "undefined") else f"group {name}"
            group = f"{named}@{','.join(map(str, ranks))}"
        of_group = status.get(str(integer(entry.get("pg_id"), f"{place}pg_id")), {})
        completed = integer(
            by_text(of_group).get("last_completed_collective"),
            "pg_status, last_completed_collective",
        )
        flight = flights.setdefault(group, Flight(rank, len(ranks), group))
        flight.calls.append(call_of(entry, len(ranks), completed, place))
    return list(flights.values())


def equalise_all_to_all(flights: List[Flight]) -> None:
    """One of unequal blocks has another size on each rank, which is no divergence."""
    largest: Dict[Tuple[str, int], int] = {}
    calls = [
        (flight.group, call)
        for flight in flights
        for call in flight.calls
        if call.collective == "all_to_all"
    ]
    for group, call in calls:
        largest[group, call.number] = max(largest.get((group, call.number), 0), call.count)
    for group, call in calls:
        call.count = largest[group, call.number]


# ---- Ringside's own records

HEADER = struct.Struct("<8siiiIqi1024s1020s64s")
ENTRY = struct.Struct("<QBBBBiQi43sB IIIiQqq")
MAGIC, CALLS = b"RNGSFLT3", 256
OWN_COLLECTIVES = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "reduce",
    "barrier",
    "gather",
    "scatter",
    "all_to_all",
    "send",
)
OWN_TYPES = ("fp32", "fp64", "int32", "int64", "fp16", "bf16", "uint8", "int8", "int16", "bool")
DONE = 2


def text_in(field_of_bytes: bytes) -> str:
    return field_of_bytes.partition(b"\0")[0].decode("utf-8", "replace")


def own_record(file: Path) -> Record:
    data = file.read_bytes()
    if len(data) != HEADER.size + CALLS * ENTRY.size or not data.startswith(MAGIC):
        raise RingsideError(
            f"{file} is not a flight recorder's file, or is cut off, or is of another version"
        )
    _, rank, size, _, _, written, _, _, group, _ = HEADER.unpack_from(data)
    flight = Flight(rank, size, text_in(group))
    for values in ENTRY.iter_unpack(data[HEADER.size :]):
        (
            number,
            collective,
            _,
            kind,
            _,
            root,
            count,
            peer,
            label,
            _,
            state,
            _,
            _,
            waiting_for,
            _,
            began,
            _,
        ) = values
        if number > 0 and collective < len(OWN_COLLECTIVES) and kind < len(OWN_TYPES):
            flight.calls.append(
                Call(
                    number,
                    OWN_COLLECTIVES[collective],
                    count,
                    OWN_TYPES[kind],
                    text_in(label),
                    state == DONE,
                    began,
                    root,
                    peer,
                    waiting_for,
                )
            )
    flight.calls.sort(key=lambda call: (call.began_ns, call.number))
    # A rank is in its job at least from the first call in its record until it writes that.
    began = flight.calls[0].began_ns if flight.calls else written - 60 * SECOND
    return Record(
        file,
        flight.in_job(rank),
        None if flight.group else size,
        flight,
        {(file.name, 0): began, (file.name, 1): written},
        most_apart=10 * SECOND,
    )


# ---- The records of one job


def apart(one: Record, other: Record) -> bool:
    """Whether two records are of different jobs, by their times: of the calls that both have, or
    else by the time between the last call of one and the first call of the other."""
    if not one.times or not other.times:
        return False
    most = max(one.most_apart, other.most_apart)
    shared = one.times.keys() & other.times.keys()
    if shared:
        return min(abs(one.times[each] - other.times[each]) for each in shared) > most
    return max(one.began(), other.began()) - min(one.ended(), other.ended()) > most


def in_words(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def last_job(records: List[Record]) -> Tuple[List[Record], int, List[str]]:
    """The records of the job whose calls are the latest, its size, and what was left out."""
    newest_first = sorted(records, key=Record.ended, reverse=True)
    newest, job, left_out = newest_first[0], [newest_first[0]], []
    size = newest.size
    for record in newest_first[1:]:
        same_size = size is None or (record.size or size) == size and record.rank < size
        if same_size and not all(apart(record, member) for member in job):
            job.append(record)
            size = size or record.size
            continue
        ranks = f" of {record.size} ranks" if record.size not in (None, size) else ""
        left_out.append(
            f"{record.file.name} is of another job{ranks}, "
            f"{in_words((newest.ended() - record.ended()) / SECOND)} earlier"
        )
    return job, size or max(record.rank for record in job) + 1, left_out


def refuse_two_of_a_rank(folder: Path, records: List[Record]) -> None:
    seen: Dict[Tuple[int, str], Record] = {}
    for record in sorted(records, key=lambda each: (each.rank, each.file.name)):
        group = record.content.group if isinstance(record.content, Flight) else ""
        other = seen.setdefault((record.rank, group), record)
        if other is not record:
            raise RingsideError(
                f"{folder} holds two records of rank {record.rank}, "
                f"{other.file.name} and {record.file.name}: leave one of them there"
            )


def torch_records(files: List[Path], left_out: List[str]) -> List[Record]:
    records = []
    for file in files:
        if not CLAIMS_TO_BE_ONE.search(file.name) and not may_be_one(file):
            continue
        try:
            records.append(torch_record(file))
        except NotARecord as error:
            if CLAIMS_TO_BE_ONE.search(file.name):
                refuse(file, error)
            left_out.append(f"{file.name} is no flight record: {error}")
    return records


def refuse(file: Path, why: Exception) -> NoReturn:
    raise RingsideError(f"{file} is no flight record of PyTorch that can be read: {why}")


def files_in(folder: Path) -> List[Path]:
    try:
        return sorted(each for each in folder.iterdir() if each.is_file())
    except OSError as error:
        raise RingsideError(f"{folder} is not a folder that can be read: {error.strerror}")


def is_own(file: Path) -> bool:
    return file.suffix == ".flight"


def refuse_folder(folder: Path) -> NoReturn:
    deeper = [
        each.name
        for each in sorted(folder.iterdir())
        if each.is_dir()
        and any(is_own(file) or NAME.fullmatch(file.name) for file in files_in(each))
    ]
    hint = f"; look at those in {folder / deeper[0]}" if deeper else ""
    raise RingsideError(
        f"{folder} holds no file of a flight recorder (RANK.flight, or of PyTorch a "
        f"name that ends in the rank's number, such as nccl_trace_rank_3){hint}"
    )


def read_folder(folder: Path) -> Folder:
    """The flights of the last job in a folder: of Ringside, where it has such files, or of PyTorch.
    Raises RingsideError that names a file and what is wrong in it."""
    files = files_in(folder)
    left_out: List[str] = []
    own = [own_record(file) for file in files if is_own(file)]
    records = own or torch_records([each for each in files if NAME.fullmatch(each.name)], left_out)
    if not records:
        refuse_folder(folder)
    job, size, others = last_job(records)
    refuse_two_of_a_rank(folder, job)
    flights = [record.content for record in own and job]
    if not own:
        groups = groups_of(job)
        for record in job:
            try:
                flights += torch_flights(record, groups, size)
            except NotARecord as error:
                refuse(record.file, error)
        equalise_all_to_all(flights)
    flights.sort(key=lambda flight: (flight.group, flight.rank))
    return Folder(flights, size, sorted(left_out + others))


def as_json(flights: List[Flight]) -> str:
    """What `ringside postmortem FILE` reads."""
    return json.dumps(
        {
            "flights": [
                {**vars(flight), "calls": [vars(call) for call in flight.calls]}
                for flight in flights
            ]
        }
    )
