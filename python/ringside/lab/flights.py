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
import re
import struct
import zlib
from collections import namedtuple
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, NoReturn, Optional, Tuple

from ringside.command_line import with_progress
from ringside.lab.data_pickle import NotData, read_pickle
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


# A group of PyTorch: its name, a number or a hash, and what it is for: "default_pg".
TorchGroup = Tuple[str, str]


class Members(NamedTuple):
    """What a record of PyTorch says of a group."""

    ranks: List[int]  # of the job; where the record does not say, the rank that wrote it
    place: str  # of the first entry of the group


@dataclass
class Record:
    """A file of Ringside with its flight, or of PyTorch with groups and calls, which become flights
    when the ranks of the job are known: until then a gather or scatter counts a block."""

    file: Path
    rank: int  # of the job
    size: Optional[int] = None  # of the job; None: the record does not say
    flight: Optional[Flight] = None
    groups: Dict[TorchGroup, Members] = field(default_factory=dict)
    calls: List[Tuple[TorchGroup, Call]] = field(default_factory=list)
    # When its calls began, in ns, by group and number: two records may share some.
    times: Dict[Tuple[str, int], int] = field(default_factory=dict)
    most_apart: int = 600 * SECOND  # by how much the times of ranks of one job may differ

    def ended(self) -> int:
        """When its last call began, in ns."""
        return max(self.times.values(), default=0)

    def began(self) -> int:
        """When its first call began, in ns."""
        return min(self.times.values(), default=0)


@dataclass
class Folder:
    """What read_folder() found."""

    flights: List[Flight]  # of one job, in the order of groups and ranks
    size: int  # of the job
    left_out: List[str]  # a sentence about each file that is none of its records


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
        if data.startswith(b"\x80"):
            return read_pickle(data)
        if not data.lstrip().startswith(b"{"):
            raise NotARecord("neither a pickle nor JSON, at byte 0")
        return json.loads(data)
    except OSError as error:
        raise NotARecord(f"cannot read it: {error.strerror}")
    except NotData as error:
        raise NotARecord(str(error))
    except json.JSONDecodeError as error:
        raise NotARecord(f"not JSON, in line {error.lineno}, column {error.colno}: {error.msg}")
    except UnicodeDecodeError as error:
        raise NotARecord(f"not JSON, at byte {error.start}: it is not UTF-8")
    except RecursionError:
        raise NotARecord("not a record in JSON: its lists are too deep")
    except ValueError as error:  # a number with thousands of digits
        raise NotARecord(f"not a record in JSON: {error}")


def may_be_one(file: Path) -> bool:
    """Whether a file that does not claim to be a record begins as one."""
    try:
        with open(file, "rb") as opened:
            return opened.read(2).startswith((b"\x80", b"{", b"\x1f\x8b"))
    except OSError:
        return False


# ---- Values of a record. `place` is where they stand, and ends in a space: "entry 3, "

LIST = (list, tuple)


def get(values: Any, key: Any, kind: Any, place: str = "") -> Any:
    """values[key], which must be of a type."""
    try:
        value = values[key]
    except (LookupError, TypeError):
        raise NotARecord(f"{place}{key} is missing")
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise NotARecord(f"{place}{key} is of another type: {type(value).__name__}")
    return value


def whole_number(value: Any, key: str, place: str) -> int:
    """The value of a key. Numbers are numbers in a pickle and in some versions texts in JSON."""
    if type(value) is int and abs(value) < 1 << 63:  # as nearly all are
        return value
    try:
        number = 0 if value is None else int(value)
    except (TypeError, ValueError, OverflowError):
        raise NotARecord(f"{place}{key} is no whole number")
    if not -1 << 63 <= number < 1 << 63:
        raise NotARecord(f"{place}{key} is no number of 64 bits")
    return number


def integer(entry: Dict[str, Any], key: str, place: str) -> int:
    """0 where the entry has no such number."""
    return whole_number(entry.get(key), key, place)


def ranks_in(text: str) -> List[int]:
    """ "[0, 2, 3]" """
    return [int(digits) for digits in re.findall(r"\d{1,7}", text)]


def by_text(values: Any) -> Dict[str, Any]:
    """A dictionary whose keys may be numbers, by their texts."""
    if not isinstance(values, dict):
        return {}
    return {str(key): value for key, value in values.items() if isinstance(key, (str, int))}


# ---- Calls of PyTorch

COLLECTIVES = (  # in the order of Ringside's own records, where messages follow them
    "all_reduce reduce_scatter all_gather broadcast reduce barrier gather scatter all_to_all"
).split()
TYPES = dict(  # by PyTorch's names, in the same order
    zip(
        "Float Double Int Long Half BFloat16 Byte Char Short Bool".split(),
        "fp32 fp64 int32 int64 fp16 bf16 uint8 int8 int16 bool".split(),
    )
)
MESSAGE = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})")  # "send 0->1", "recv 1<-0"


class Operation(NamedTuple):
    """What a profiling name says of a call, as in Call."""

    collective: str
    label: str = ""
    root: int = 0
    peer: int = 0
    waiting_for: int = -1


@lru_cache(maxsize=4096)
def operation_named(profiling_name: str) -> Operation:
    """ "nccl:_all_gather_base", "nccl:send 0->1". A name that is not known labels a barrier."""
    name = profiling_name[profiling_name.find(":") + 1 :]
    message = MESSAGE.search(name)
    if message:
        own, peer = int(message[2]), int(message[3])
        ends = (own, peer) if message[1] == "send" else (peer, own)
        return Operation("send", "", *ends, waiting_for=peer)
    if name.startswith("all_reduce_barrier"):
        return Operation("barrier")
    plain = name.replace("_", "")  # "_allgather_base", "all_gather_into_tensor_coalesced"
    known = [each for each in COLLECTIVES if plain.startswith(each.replace("_", ""))]
    return Operation(known[0]) if known else Operation("barrier", name)


def elements_of(entry: Any, key: str, place: str) -> int:
    """The elements of all tensors whose shapes an entry has."""
    elements = 0
    for shape in get(entry, key, LIST, place):
        product = 1
        for extent in shape if isinstance(shape, LIST) else [shape]:
            product *= whole_number(extent, key, place)
        elements += product
    if not 0 <= elements < 1 << 63:
        raise NotARecord(f"{place}{key} is no size of a tensor")
    return elements


def count_of(collective: str, entry: Any, place: str) -> int:
    """Of the whole buffer; where only the root has it, of a block."""
    into = elements_of(entry, "input_sizes", place)
    out = elements_of(entry, "output_sizes", place)
    if collective == "barrier":
        return 0
    return out if collective in ("all_gather", "scatter") else into


def call_of(entry: Any, operation: Operation, completed: int, place: str) -> Call:
    """`completed`: the number of the group's last collective call that had ended."""
    types = get(entry, "input_dtypes", LIST, place)
    type_name = get(types, 0, str, f"{place}input_dtypes ") if types else "Byte"
    message = operation.collective == "send"
    key = "p2p_seq_id" if message else "collective_seq_id"
    number = integer(entry, key, place)
    if number < 0:
        raise NotARecord(f"{place}the number of its call is negative")
    return Call(
        number,
        operation.collective,
        count_of(operation.collective, entry, place),
        TYPES.get(type_name, "uint8"),
        operation.label or ("" if type_name in TYPES else f"elements of the type {type_name}"),
        entry.get("state") == "completed"
        or entry.get("retired") is True
        or (not message and number <= completed),
        integer(entry, "time_created_ns", place),
        *operation[2:],
    )


# ---- Records of PyTorch


def configured_ranks(content: Any, name: str) -> List[int]:
    """The ranks of a group as the record has them. One of gloo does not."""
    config = by_text(content.get("pg_config")).get(name) if name else None
    return ranks_in(get(config, "ranks", str, f"pg_config {name}, ")) if config else []


def size_of(content: Any) -> Optional[int]:
    """The size of the job, by the group of all ranks."""
    for config in by_text(content.get("pg_config")).values():
        if isinstance(config, dict) and config.get("desc") == "default_pg":
            return len(ranks_in(get(config, "ranks", str, "pg_config, "))) or None
    return None


def group_of(record: Record, content: Any, entry: Any, place: str) -> TorchGroup:
    """The group of an entry, which the record has from now on."""
    names = get(entry, "process_group", LIST, place)
    name = get(names, 0, str, f"{place}process_group ")
    about = get(names, 1, str, f"{place}process_group ")
    if (name, about) not in record.groups:
        ranks = configured_ranks(content, name) or [record.rank]
        record.groups[name, about] = Members(ranks, place)
    return name, about


def torch_record(file: Path) -> Record:
    """Reads a file of PyTorch. Raises NotARecord."""
    content = read_data(file)
    if not isinstance(content, dict):
        raise NotARecord(f"it is of another type: {type(content).__name__}")
    record = Record(file, int(NAME.fullmatch(file.name)[1]))  # type: ignore[index]
    status_of = {
        group: by_text(status) for group, status in by_text(content.get("pg_status")).items()
    }
    longest_wait = 0
    for i, entry in enumerate(get(content, "entries", LIST)):
        place = f"entry {i}, "
        if not isinstance(entry, dict):
            raise NotARecord(f"entry {i} is of another type: {type(entry).__name__}")
        name = get(entry, "profiling_name", str, place)
        operation, group = operation_named(name), group_of(record, content, entry, place)
        if operation.collective != "send" and not entry.get("is_p2p"):
            number = integer(entry, "collective_seq_id", place)
            began = integer(entry, "time_created_ns", place)
            record.times[group[0], number] = began
        longest_wait = max(longest_wait, integer(entry, "timeout_ms", place))
        if not name.endswith(":coalesced"):  # the bracket around messages with entries of their own
            status = status_of.get(str(integer(entry, "pg_id", place)), {})
            last = integer(status, "last_completed_collective", "pg_status, ")
            record.calls.append((group, call_of(entry, operation, last, place)))
    record.most_apart = min(longest_wait, 3_600_000) * SECOND // 1000 or record.most_apart
    record.size = size_of(content)
    if record.rank >= min(record.size or MOST_RANKS, MOST_RANKS):
        raise NotARecord(
            f"its name ends in {record.rank}, and its job has {record.size} ranks: end it in "
            "the number of its rank"
        )
    return record


def ranks_of_groups(records: Iterable[Record]) -> Dict[str, List[int]]:
    """The ranks of each group of PyTorch. Where no record has them: those that called in it."""
    ranks: Dict[str, set] = {}
    for record in records:
        for (name, _), members in record.groups.items():
            if record.rank not in ranks.setdefault(name, set()):
                ranks[name].update(members.ranks)
    return {name: sorted(each) for name, each in ranks.items()}


def torch_flights(record: Record, ranks_of: Dict[str, List[int]], size: int) -> List[Flight]:
    """One for each group of a record. A call's operation and algorithm are not in it."""
    flights: Dict[str, Flight] = {}
    flight_of: Dict[TorchGroup, Flight] = {}
    for (name, about), members in record.groups.items():
        rank, ranks, group = record.rank, list(range(size)), ""
        if about != "default_pg":
            ranks = ranks_of[name]
            if record.rank not in ranks:
                raise NotARecord(
                    f"{members.place}rank {record.rank} does not belong to its group {name}"
                )
            rank = ranks.index(record.rank)
            named = about if about not in ("", "undefined") else f"group {name}"
            group = f"{named}@{','.join(map(str, ranks))}"
        flight_of[name, about] = flights.setdefault(group, Flight(rank, len(ranks), group))
    for torch_group, call in record.calls:
        flight = flight_of[torch_group]
        if call.collective in ("gather", "scatter"):
            call.count *= flight.size
        flight.calls.append(call)
    return [flight for flight in flights.values() if flight.calls]


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
Header = namedtuple("Header", "magic rank size pid entries written_ns blamed cause group mesh")
ENTRY = struct.Struct("<QBBBBiQi43sB IIIiQqq")
Entry = namedtuple(
    "Entry",
    "number collective operation type algorithm root count peer label padding "
    "state step steps waiting_for bytes_received began_ns failed_ns",
)
MAGIC, CALLS = b"RNGSFLT3", 256
OWN_COLLECTIVES, OWN_TYPES = [*COLLECTIVES, "send"], list(TYPES.values())
DONE = 2


def text_in(field_of_bytes: bytes) -> str:
    """Up to the 0 that ends it."""
    return field_of_bytes.partition(b"\0")[0].decode("utf-8", "replace")


def own_record(file: Path) -> Record:
    """Reads a file of Ringside's recorder."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise RingsideError(f"cannot read {file}: {error.strerror}")
    whole = len(data) == HEADER.size + CALLS * ENTRY.size and data.startswith(MAGIC)
    header = Header._make(HEADER.unpack_from(data)) if whole else None
    if not header or not 0 <= header.rank < header.size <= MOST_RANKS:
        raise RingsideError(
            f"{file} is not a flight recorder's file, or is cut off, or is of another version"
        )
    flight = Flight(header.rank, header.size, text_in(header.group))
    for call in map(Entry._make, ENTRY.iter_unpack(data[HEADER.size :])):
        known = call.collective < len(OWN_COLLECTIVES) and call.type < len(OWN_TYPES)
        if call.number > 0 and known:
            flight.calls.append(
                Call(
                    call.number,
                    OWN_COLLECTIVES[call.collective],
                    call.count,
                    OWN_TYPES[call.type],
                    text_in(call.label),
                    call.state == DONE,
                    *(call.began_ns, call.root, call.peer, call.waiting_for),
                )
            )
    flight.calls.sort(key=lambda call: (call.began_ns, call.number))
    # A rank is in its job at least from the first call in its record until it writes that.
    began = flight.calls[0].began_ns if flight.calls else header.written_ns - 60 * SECOND
    return Record(
        file,
        flight.in_job(header.rank),
        None if flight.group else header.size,
        flight,
        times={(file.name, 0): began, (file.name, 1): header.written_ns},
        most_apart=10 * SECOND,
    )


# ---- The records of one job


def apart(one: Record, other: Record) -> bool:
    """Whether two records are of different jobs, by their times: of the calls that both have, or
    else by the time between the last call of one and the first call of the other."""
    if not one.times or not other.times:
        return False
    most = max(one.most_apart, other.most_apart)
    share_a_call = False
    for call in reversed(one.times):  # ranks of one job share their last calls
        if call in other.times:
            share_a_call = True
            if abs(one.times[call] - other.times[call]) <= most:
                return False
    return share_a_call or max(one.began(), other.began()) - min(one.ended(), other.ended()) > most


def in_words(seconds: float) -> str:
    """ "24.0 h", "1.5 min"."""
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
    """Raises RingsideError if two files are of one rank and group."""
    seen: Dict[Tuple[int, str], Record] = {}
    for record in sorted(records, key=lambda each: (each.rank, each.file.name)):
        group = record.flight.group if record.flight else ""
        other = seen.setdefault((record.rank, group), record)
        if other is not record:
            raise RingsideError(
                f"{folder} holds two records of rank {record.rank}, "
                f"{other.file.name} and {record.file.name}: leave one of them there"
            )


def refuse(file: Path, why: Exception) -> NoReturn:
    """Raises RingsideError about a file that must be a record of PyTorch."""
    raise RingsideError(f"{file} is no flight record of PyTorch that can be read: {why}")


def torch_records(files: List[Path], left_out: List[str]) -> List[Record]:
    """Of the files whose names end in a rank. Adds to `left_out` those that are no record."""
    records = []
    for file in with_progress(files, "read {} of {} records"):
        claims = CLAIMS_TO_BE_ONE.search(file.name)
        if claims or may_be_one(file):
            try:
                records.append(torch_record(file))
            except NotARecord as error:
                if claims:
                    refuse(file, error)
                left_out.append(f"{file.name} is no flight record: {error}")
    return records


def flights_of_torch(job: List[Record], size: int) -> List[Flight]:
    """Those of all records of a job of PyTorch."""
    ranks_of, flights = ranks_of_groups(job), []
    for record in job:
        try:
            flights += torch_flights(record, ranks_of, size)
        except NotARecord as error:
            refuse(record.file, error)
    equalise_all_to_all(flights)
    return flights


def files_in(folder: Path) -> List[Path]:
    """The files of a folder, by their names."""
    try:
        return sorted(each for each in folder.iterdir() if each.is_file())
    except OSError as error:
        raise RingsideError(f"{folder} is not a folder that can be read: {error.strerror}")


def is_own(file: Path) -> bool:
    """Whether Ringside's recorder wrote a file."""
    return file.suffix == ".flight"


def refuse_folder(folder: Path) -> NoReturn:
    """Raises RingsideError about a folder without records, and names a folder in it that has some."""
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
    flights = [each.flight for each in job if each.flight] or flights_of_torch(job, size)
    flights.sort(key=lambda flight: (flight.group, flight.rank))
    return Folder(flights, size, sorted(left_out + others))


def as_json(flights: List[Flight]) -> str:
    """What `ringside postmortem FILE` reads: of the calls that the ranks of a group made alike only
    each rank's last, and of its messages the last. The others decide nothing, and are nearly all."""
    made: Dict[Tuple[str, int], set] = {}
    for flight in flights:
        for call in flight.calls:
            if call.collective != "send":
                what = (call.collective, call.count, call.type, call.label, call.root)
                made.setdefault((flight.group, call.number), set()).add(what)
    told = []
    for flight in flights:
        last = {call.collective == "send": id(call) for call in flight.calls}.values()
        calls = [
            vars(call)
            for call in flight.calls
            if id(call) in last
            or (call.collective != "send" and len(made[flight.group, call.number]) > 1)
        ]
        told.append({**vars(flight), "calls": calls})
    return json.dumps({"flights": told})
