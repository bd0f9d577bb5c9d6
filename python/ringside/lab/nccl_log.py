"""Reads what NCCL writes with NCCL_DEBUG=INFO: the lines of INIT, GRAPH, TUNING, COLL, ENV and P2P.

    node1:17:31 [0] NCCL INFO Channel 00/02 :  0  1  2  3         a ring, by rank 0
    node1:17:31 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] ...    children -> rank -> parent
    node1:17:31 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}

The words in front of NCCL may be missing, and a launcher's may stand before them. Forms of older
versions, back to 2.6, and of RCCL are read too. A line of no known form is counted, not guessed.

Source of the forms: NCCL 2.28, src/init.cc, src/enqueue.cc, src/debug.cc, src/graph/tuning.cc,
search.cc, topo.cc, rings.cc and src/transport/*.cc.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

MOST_COLUMNS = 1 << 16  # of a line; a longer one is not read
MOST_FORMS = 1000  # of lines that are not understood, each by itself

ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
PROTOCOLS = ("LL", "LL128", "SIMPLE")
PATTERNS = {1: "tree", 2: "tree", 3: "tree", 4: "ring", 5: "nvls", 6: "collnet_direct"}
PATHS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET")  # topo.h
COUNT_OF_A_RANK = ("AllGather", "ReduceScatter")  # a line has the count of one rank's part
ELEMENT_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)  # [ncclDataType_t]


class Thread(NamedTuple):
    """Who wrote a line: None where it does not say so."""

    host: Optional[str]
    process: Optional[str]
    thread: Optional[str]
    device: Optional[str]


class Search(NamedTuple):
    """What NCCL's search found for rings or trees: GB/s are those of one channel."""

    kind: str  # "ring", "tree", "collnet", ...
    channels: int
    inside: float
    between: float
    path_inside: str  # "NVL", "PHB", ...
    path_between: str


class Connection(NamedTuple):
    channel: int
    sender: int
    receiver: int
    via: str  # "P2P/CUMEM", "SHM/direct/direct", "NET/IB/0/GDRDMA"


How = Tuple[str, str]  # algorithm and protocol: ("RING", "SIMPLE")
Model = Dict[str, Dict[How, Tuple[float, float]]]  # [call][how] latency in us, GB/s; 0: not used


class Choice(NamedTuple):
    """`size` is the whole buffer in bytes, in an all_gather that of all ranks; None: the line says
    the part of a rank, and not how many there are."""

    call: str  # "AllReduce"; "" where the line does not name it
    size: Optional[int]
    how: How
    channels: Optional[int]
    time_us: Optional[float]  # by NCCL's model


Tree = Tuple[int, List[int]]  # parent, or -1, and children


@dataclass
class Session:
    """What one rank said of one communicator."""

    thread: Thread
    rank: Optional[int] = None
    ranks: Optional[int] = None
    hosts: Optional[int] = None
    identity: Optional[str] = None  # alike on all ranks
    complete: bool = False
    rings: Dict[int, List[int]] = field(default_factory=dict)
    channels: Optional[int] = None
    next: Dict[int, int] = field(default_factory=dict)  # [channel] the rank behind this one
    trees: Dict[int, Tree] = field(default_factory=dict)
    connections: List[Connection] = field(default_factory=list)
    searches: List[Search] = field(default_factory=list)
    model: Model = field(default_factory=dict)
    columns: List[How] = field(default_factory=list)  # of the model's table


@dataclass
class Log:
    lines: int = 0
    of_nccl: int = 0
    version: Optional[str] = None
    network: Optional[str] = None
    sessions: List[Session] = field(default_factory=list)
    choices: Counter = field(default_factory=Counter)
    calls: Counter = field(default_factory=Counter)  # (call, bytes, ranks)
    links: Dict[Tuple[str, str], float] = field(default_factory=dict)  # (kind, node) GB/s
    settings: Dict[str, str] = field(default_factory=dict)
    warnings: Counter = field(default_factory=Counter)
    remarks: Counter = field(default_factory=Counter)  # what NCCL says that it cannot use
    unread: Counter = field(default_factory=Counter)  # (form) how often


# The forms. {n} is a whole number, {f} one that may have a point.

WHOLE, POINT = r"(-?\d{1,18})", r"(\d{1,18}(?:\.\d{1,18})?)"


def form(text: str) -> "re.Pattern[str]":
    return re.compile(text.replace("{n}", WHOLE).replace("{f}", POINT), re.ASCII)


PREFIX = re.compile(
    r"(?:(?P<host>[\w.-]+):(?P<process>\d+):(?P<thread>\d+) )?(?:\[(?P<device>\d+)\] )?"
    r"(?:[\d.]+ )?(?:\S+:\d+ )?NCCL (?P<kind>INFO|WARN) ?",
    re.ASCII,
)
TREE_ENTRY = form(r"\[{n}\] {n}/{n}/{n}->{n}->{n}")
OLD_TREE_ENTRY = form(r"\[{n}\] {n}->{n}->{n}/{n}/{n}")
MODEL_CELL = form(r" *{f}/ *{f} *")

# Lines that are understood, and say nothing of rings, choices or limits.
SAID_ENOUGH = re.compile(
    r"Connected |P2P Chunksize|Bootstrap|cudaDriverVersion|Setting affinity|Check P2P Type|"
    r"threadThresholds|New proxy|Connection to proxy|\[Proxy |comm 0x\w+ rank \d+ nranks \d+.*"
    r"(?:Destroy|Abort) COMPLETE|comm:0x|CC O|NVLS |Init timings|MNNVL|ncclTopo|\w+/Plugin|"
    r"NET/\w* ?:|NET/\w+ |Plugin|Using (?:internal|non)|DMA-BUF|(?:Failed to |Successfully )?"
    r"(?:[Ii]nitialized?|loaded) |Tree \d+ :|=+$|=== System|\d* ?\d+ : |Launch mode|Assigned NET|"
    r"Comm config|(?:GPU|NET|CPU|NIC|NVS|PCI)/\S+ (?:\(|:)|RAS |\[Rank |ncclCommInit|GFX|"
    r"\s*\+ (?:PCI|NVL|NET|SYS|C2C|LOC|XGMI)\[|Allocated|Imported|CollNet|GPU Direct RDMA Enabled|"
    r"Loading|Memory|\S+:\d+ -> \d+|Enabled NCCL Func|RCCL |(?:pre|post)-adjustment|minNChannels|"
    r"\[RINGS\]|NCCL git|TUNER|PROFILER",
    re.ASCII,
)


class Reader:
    """Takes one line after the other; FORMS has a method for each form."""

    def __init__(self) -> None:
        self.log = Log()
        self.open: Dict[Thread, Session] = {}

    def session(self, thread: Thread) -> Session:
        """The one that a thread is making, or a new one after it has completed another."""
        now = self.open.get(thread)
        if now is None or now.complete:
            now = self.open[thread] = Session(thread)
            self.log.sessions.append(now)
        return now

    def line(self, line: str) -> None:
        self.log.lines += 1
        if len(line) > MOST_COLUMNS:
            self.log.unread["a line of more than 65536 columns"] += 1
            return
        version = re.search(r"\b([NR]CCL) version (\d[\w.+:-]*)", line)
        if version:
            self.log.version = f"{version[1]} {version[2]}"
        found = list(PREFIX.finditer(line))
        for each, following in zip(found, [*found[1:], None]):  # ranks may write into one line
            self.log.of_nccl += 1
            body = line[each.end() : following.start() if following else None].rstrip()
            said = (each[key] for key in ("host", "process", "thread", "device"))
            if each["kind"] == "WARN":
                self.log.warnings[body] += 1
            else:
                self.message(Thread(*said), body)

    def message(self, thread: Thread, body: str) -> None:
        for pattern, take in FORMS:
            match = pattern.match(body)
            if match and take(self, thread, match) is not False:
                return
        if not SAID_ENOUGH.match(body) and not re.match(r"\S* ?(?:[NR]CCL|HIP) version", body):
            like = re.sub(r"0x\w+|\d+", "#", body[:200])[:70].strip()
            known = like in self.log.unread or len(self.log.unread) < MOST_FORMS
            self.log.unread[like if known else "other forms"] += 1

    # Communicators.

    def started(self, thread: Thread, m: "re.Match[str]") -> None:
        self.open.pop(thread, None)
        self.named(thread, m)

    def named(self, thread: Thread, m: "re.Match[str]") -> None:
        """ "comm 0x.. rank 0 nranks 8 ...": START, COMPLETE, or with the number of hosts."""
        now = self.session(thread)
        now.rank, now.ranks = int(m[1]), int(m[2])
        rest = m[3]
        identity = re.search(r"commId (0x[0-9a-f]+)", rest)
        parent = re.search(r"parent \S+ (?:splitCount (\d+) )?color (-?\d+)", rest)
        if identity and int(identity[1], 16):
            now.identity = identity[1]
        elif parent:
            now.identity = f"split {parent[1] or ''} color {parent[2]}"
        hosts = re.search(f"nNodes {WHOLE}", rest)
        now.hosts = int(hosts[1]) if hosts else now.hosts
        now.complete = "Init COMPLETE" in rest

    # Rings and trees.

    def ring(self, thread: Thread, m: "re.Match[str]") -> None:
        now = self.session(thread)
        ranks = [int(each) for each in m[3].split()]
        if m[4]:  # cut off, perhaps within a number
            ranks.pop()
        now.rings[int(m[1])], now.channels = ranks, int(m[2])
        now.rank = now.rank if now.rank is not None else ranks[0] if ranks else None

    def link(self, thread: Thread, m: "re.Match[str]") -> None:
        now = self.session(thread)
        now.rank, now.next[int(m[1])] = int(m[3]), int(m[4])

    def tree(self, thread: Thread, m: "re.Match[str]") -> None:
        now, entries = self.session(thread), TREE_ENTRY.findall(m[0])
        for channel, a, b, c, rank, parent in entries:
            children = [int(each) for each in (a, b, c) if int(each) >= 0]
            now.rank, now.trees[int(channel)] = int(rank), (int(parent), children)
        for channel, parent, rank, a, b, c in [] if entries else OLD_TREE_ENTRY.findall(m[0]):
            children = [int(each) for each in (a, b, c) if int(each) >= 0]
            now.rank, now.trees[int(channel)] = int(rank), (int(parent), children)

    def connection(self, thread: Thread, m: "re.Match[str]") -> None:
        """Also after the communicator is complete: sends and receives connect when they are used,
        as connection 1 of a channel."""
        if m[2] in (None, "0"):
            same = [
                each
                for each in self.log.sessions
                if each.thread._replace(thread=None) == thread._replace(thread=None)
            ]
            now = self.open.get(thread) or (same[-1] if same else self.session(thread))
            via = re.sub(r" (?:comm 0x\w+.*)$", "", m[5]).strip()
            now.connections.append(Connection(int(m[1]), int(m[3]), int(m[4]), via))

    def all_channels(self, thread: Thread, m: "re.Match[str]") -> None:
        self.session(thread).channels = int(m[1])

    # The search and the model.

    def search(self, thread: Thread, m: "re.Match[str]") -> None:
        now = self.session(thread)
        kind = PATTERNS.get(int(m[1]), f"pattern {m[1]}")
        if kind == "tree" and any(each.kind == "tree" for each in now.searches):
            kind = "collnet"
        numbers = (int(m[2]), float(m[3]), float(m[4]))
        now.searches.append(Search(kind, *numbers, m[5], m[6]))

    def algorithms_of_table(self, thread: Thread, m: "re.Match[str]") -> None:
        names = [algorithm_named(each) for each in m[1].split("|") if each.strip()]
        self.session(thread).columns = [
            (name, protocol) for name in names for protocol in PROTOCOLS
        ]

    def columns_of_table(self, thread: Thread, m: "re.Match[str]") -> None:
        """Until 2.13: a column for each pair."""
        pairs = [each.split("/") for each in m[1].split("|") if "/" in each]
        named = [(algorithm_named(a), b.strip().upper()) for a, b in pairs]
        self.session(thread).columns = named

    def row_of_table(self, thread: Thread, m: "re.Match[str]") -> Optional[bool]:
        now = self.session(thread)
        cells = [MODEL_CELL.fullmatch(each) for each in m[2].split("|") if each.strip()]
        if len(cells) != len(now.columns) or not all(cells):
            return False
        row = now.model.setdefault(m[1], {})
        row.update({how: (float(c[1]), float(c[2])) for how, c in zip(now.columns, cells)})
        return None

    # Calls.

    def choice(self, thread: Thread, m: "re.Match[str]") -> None:
        call, size, rest = m[1] or "", int(m[2]), m[5]
        channels = re.search(rf"=\{{{WHOLE}\.\.{WHOLE}\}}", rest)
        time = re.search(f"time {POINT}", rest)
        if channels and call in COUNT_OF_A_RANK:
            ranks = {each.ranks for each in self.log.sessions if each.ranks}
            size = size * ranks.pop() if len(ranks) == 1 else None
        how = algorithm_named(m[3]), protocol_named(m[4])
        count = int(channels[2]) - int(channels[1]) + 1 if channels else None
        microseconds = float(time[1]) if time and float(time[1]) > 0 else None
        self.log.choices[Choice(call, size, how, count, microseconds)] += 1

    def kernel(self, thread: Thread, m: "re.Match[str]") -> None:
        """Symmetric memory, and copies without a kernel."""
        count = re.search(f"nchannels {WHOLE}", m[4])
        channels = int(count[1]) if count else None
        name = m[4].split()[1] if m[4].startswith("Kernel") else m[4]
        self.log.choices[Choice(m[1], int(m[3]), (name, m[2].lower()), channels, None)] += 1

    def call(self, thread: Thread, m: "re.Match[str]") -> Optional[bool]:
        if int(m[3]) >= len(ELEMENT_BYTES):
            return False
        count = int(m[2]) * (int(m[4]) if m[1] in COUNT_OF_A_RANK else 1)
        self.log.calls[m[1], count * ELEMENT_BYTES[int(m[3])], int(m[4])] += 1
        return None

    # The rest.

    def link_of_topology(self, thread: Thread, m: "re.Match[str]") -> None:
        if thread.host is None or m[1] != "SYS":
            self.log.links[m[1], f"{thread.host or ''} {m[3]}".strip()] = float(m[2])

    def setting(self, thread: Thread, m: "re.Match[str]") -> None:
        self.log.settings[m[1]] = m[2].rstrip(".")

    def using(self, thread: Thread, m: "re.Match[str]") -> None:
        self.log.network = m[1]

    def remark(self, thread: Thread, m: "re.Match[str]") -> None:
        self.log.remarks[m[0]] += 1


def algorithm_named(text: str) -> str:
    """ "NVLSTree" and "5" are NVLS_TREE."""
    text = text.strip()
    if text.isdigit():
        return ALGORITHMS[int(text)] if int(text) < len(ALGORITHMS) else text
    letters = text.replace("_", "").upper()
    return next((each for each in ALGORITHMS if each.replace("_", "") == letters), text.upper())


def protocol_named(text: str) -> str:
    return PROTOCOLS[int(text)] if text.isdigit() and int(text) < 3 else text.upper()


FORMS: List[Tuple["re.Pattern[str]", Callable[[Reader, Thread, Any], Optional[bool]]]] = [
    (form(r"(?:\w+ )?comm \w+ rank {n} nranks {n} (.*Init START.*)"), Reader.started),
    (
        form(r"(?:\w+ )?comm \w+ rank {n} n[rR]anks {n} (.*(?:Init COMPLETE|nNodes).*)"),
        Reader.named,
    ),
    (form(r"Channel {n}/{n} :((?: +\d{1,9})+)( ?\.\.\.)? *$"), Reader.ring),
    (form(r"Ring {n} : {n} -> {n} -> {n}"), Reader.link),
    (form(r"Trees (?=\[).*"), Reader.tree),
    (
        form(
            r"(?:Channel|Ring) {n}(?:/(\d+))? : {n}(?:\[\w+\])? -> {n}(?:\[\w+\])?"
            r"(?: \[(?:send|receive)\])? via (\S.*)"
        ),
        Reader.connection,
    ),
    (form(r"{n} coll channels"), Reader.all_channels),
    (
        form(r"Pattern {n}, crossNic \d+, nChannels {n}, (?:bw|speed) {f}/{f}, type (\w+)/(\w+)"),
        Reader.search,
    ),
    (form(r" *Algorithm +\|(.*)"), Reader.algorithms_of_table),
    (form(r" *Protocol +\||  *Max NThreads \|"), lambda reader, thread, m: None),
    (form(r" *Latency/AlgBw \|(.*)"), Reader.columns_of_table),
    (form(r" *(Broadcast|Reduce|AllGather|ReduceScatter|AllReduce) \|(.*)"), Reader.row_of_table),
    (form(r"(?:(\w+): *)?{n} Bytes +-> Algo (\w+) +proto (\w+)(.*)"), Reader.choice),
    (form(r"(\w+) \[([\w ]+)\]: {n} Bytes -> (.+)"), Reader.kernel),
    (
        form(
            r"(\w+): opCount \w+ sendbuff \S+ recvbuff \S+ (?:acc \S+ )?count {n} datatype {n} op \d+ root -?\d+ "
            r"comm \S+ \[nranks={n}\]"
        ),
        Reader.call,
    ),
    (form(r" *\+ (PCI|NVL|NET|C2C|SYS)\[{f}\] - (\S+)"), Reader.link_of_topology),
    (form(r"(NCCL_\w+) set by environment to (.+)"), Reader.setting),
    (form(r"Using network (\S+)"), Reader.using),
    (
        form(
            r"GPU Direct RDMA Disabled .*|P2P is disabled .*|Could not enable P2P .*|"
            r"Could not find a path .*|Legacy IPC not supported.*|Disabling LL128 .*|"
            r"NET/IB : No device found.*|PXN Disabled .*"
        ),
        Reader.remark,
    ),
]


def read_log(lines: Iterable[str]) -> Log:
    reader = Reader()
    for line in lines:
        reader.line(line)
    return reader.log


# What several ranks said of one communicator.


@dataclass
class Communicator:
    sessions: List[Session]

    @property
    def ranks(self) -> Optional[int]:
        """As many as NCCL says, else as many as a ring has."""
        said = [each.ranks for each in self.sessions if each.ranks]
        lengths = [len(ring) for each in self.sessions for ring in each.rings.values()]
        whole = [length for length in lengths if length < 20]  # longer ones may have been cut off
        return max(said or whole or [0]) or None

    @property
    def hosts(self) -> Optional[int]:
        """As many as NCCL says, else as many as the names of all ranks' hosts."""
        said = next((each.hosts for each in self.sessions if each.hosts), None)
        names = self.host_of()
        return said or (len(set(names.values())) if len(names) == self.ranks else None)

    def over_network(self) -> bool:
        """Also where the log does not say how many hosts there are."""
        vias = self.connections().values()
        return (self.hosts or 1) > 1 or any(via.startswith("NET/") for via in vias)

    def host_of(self) -> Dict[int, str]:
        return {
            each.rank: each.thread.host
            for each in self.sessions
            if each.rank is not None and each.thread.host
        }

    def rings(self) -> Dict[int, List[int]]:
        """[channel] the ranks in their order, from rank 0. From each rank's neighbours, where all
        ranks tell them; else what rank 0 printed, which may be cut off."""
        found = {channel: ring for each in self.sessions for channel, ring in each.rings.items()}
        following: Dict[int, Dict[int, int]] = {}
        for each in self.sessions:
            for channel, behind in each.next.items():
                following.setdefault(channel, {})[each.rank] = behind
        for channel, behind in following.items():
            ring = [0]
            while len(ring) <= len(behind) and behind.get(ring[-1], 0) != 0:
                ring.append(behind[ring[-1]])
            if len(ring) == self.ranks:
                found[channel] = ring
        return dict(sorted(found.items()))

    def trees(self) -> Dict[int, Dict[int, Tree]]:
        """[channel][rank]."""
        found: Dict[int, Dict[int, Tree]] = {}
        for each in self.sessions:
            for channel, tree in each.trees.items():
                found.setdefault(channel, {})[each.rank] = tree
        return dict(sorted(found.items()))

    def connections(self) -> Dict[Tuple[int, int], str]:
        """[sender, receiver] by what. Both ends of a network connection tell it."""
        return {(c.sender, c.receiver): c.via for each in self.sessions for c in each.connections}

    def searches(self) -> List[Search]:
        """NCCL takes the least of what its ranks find, each number by itself (init.cc)."""
        by_kind: Dict[str, List[Search]] = {}
        for each in self.sessions:
            for search in each.searches:
                by_kind.setdefault(search.kind, []).append(search)

        def furthest(paths: Iterable[str]) -> str:
            return max(paths, key=lambda path: PATHS.index(path) if path in PATHS else 0)

        return [
            Search(
                kind,
                min(each.channels for each in found),
                min(each.inside for each in found),
                min(each.between for each in found),
                furthest(each.path_inside for each in found),
                furthest(each.path_between for each in found),
            )
            for kind, found in by_kind.items()
        ]

    def model(self) -> Model:
        """Rank 0 prints it."""
        return next((each.model for each in self.sessions if each.model), {})


def communicators(log: Log) -> List[Communicator]:
    """Sessions of one identity; where NCCL prints none, the nth of each thread's device. One whose
    number of ranks the log does not say belongs to the only one of its process."""
    groups: Dict[Any, List[Session]] = {}
    turn: Counter = Counter()
    for each in log.sessions:
        if not (
            each.rings or each.trees or each.searches or each.connections or each.model or each.next
        ):
            continue
        place = (each.thread.host, each.thread.process, each.thread.device, each.ranks)
        key = each.identity or (each.ranks, turn[place])
        turn[place] += 0 if each.identity else 1
        groups.setdefault(key, []).append(each)
    found = list(groups.values())
    for group in [each for each in found if not any(session.ranks for session in each)]:
        process = {each.thread[:2] for each in group}
        same = [
            each
            for each in found
            if each is not group and any(session.thread[:2] in process for session in each)
        ]
        if len(same) == 1:
            same[0].extend(group)
            found = [each for each in found if each is not group]
    return [Communicator(each) for each in found]
