"""`ringside nccl LOG`: what a log of NCCL says about its rings, its trees and its choices, in the
words of this project, and what limits the speed by its own account."""

import argparse
import gzip
import re
import zlib
from collections import Counter
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from ringside.command_line import (
    JSON_OPTION,
    Command,
    Option,
    UsageError,
    Words,
    counted,
    text_beside,
    visible,
)
from ringside.lab.nccl_log import Communicator, How, Log, Search, Tree, communicators, read_log
from ringside.lab.nccl_xml import MOST_BYTES, Topology, Unreadable, read_xml
from ringside.lab.numbers import bytes_to_text, table_number
from ringside.lab.report import wrap, write_json_file
from ringside.lab.tables import Column, Table, only_in_json, words
from ringside.library import RingsideError
from ringside.planning.collective_time import CLOSED_FORMS, algorithms_on, collective_times
from ringside.planning.machine import Machine, find_machine, machine_names

MOST_LOG_BYTES = 1 << 30
HOW_TO_LOG = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING"
NAMES = {  # ours for NCCL's
    "RING": "ring",
    "TREE": "double_tree",
    "PAT": "pat",
    "NVLS": "in_network (NVLS)",
    "NVLS_TREE": "in_network, then double_tree (NVLS_TREE)",
    "COLLNET_DIRECT": "in_network (COLLNET_DIRECT)",
    "COLLNET_CHAIN": "in_network (COLLNET_CHAIN)",
}
CALLS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
}
PATHS = {  # src/graph/topo.h
    "LOC": "inside one GPU",
    "NVL": "by NVLink",
    "NVB": "by NVLink through another GPU",
    "C2C": "by NVLink-C2C",
    "PIX": "through one PCIe switch",
    "PXB": "through several PCIe switches",
    "P2C": "by NVLink-C2C and PCIe",
    "PXN": "through another GPU to its network card",
    "PHB": "through PCIe and the CPU",
    "SYS": "between CPUs",
    "NET": "over the network",
}
# Settings that decide or narrow what NCCL may take.
DECIDING = re.compile(
    "NCCL_(ALGO|PROTO|(MIN|MAX)_(NCHANNELS|CTAS|NRINGS)|P2P_\\w+|SHM_DISABLE|NET(_GDR_\\w+)?|IB_\\w+|"
    "SOCKET_\\w+|CROSS_NIC|BUFFSIZE|NTHREADS|NVLS_ENABLE|COLLNET_ENABLE|PXN_\\w+|TOPO_FILE|GRAPH_FILE|"
    "LL128?_\\w+|TUNER_PLUGIN|CUMEM_ENABLE|MNNVL_ENABLE|PAT_ENABLE|TUNER_CONFIG_FILE)$"
)


def on(place: str) -> str:
    return PATHS.get(place, place) + (f" ({place})" if place in PATHS else "")


def size_text(size: float) -> str:
    """ "4 MiB", "1000 B"."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale and size % scale == 0:
            return f"{int(size) // scale} {unit}"
    return bytes_to_text(int(size))


def channels_in_words(channels: Iterable[int]) -> str:
    """ "channel 3", "channels 0-3, 8"."""
    numbers, runs = sorted(channels), []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in runs)
    return f"channel{'' if len(numbers) == 1 else 's'} {text}"


def alike(by_channel: Dict[int, Any]) -> List[Tuple[List[int], Any]]:
    """Channels that have the same, together."""
    groups: List[Tuple[List[int], Any]] = []
    for channel, value in by_channel.items():
        known = next((group for group in groups if group[1] == value), None)
        if known:
            known[0].append(channel)
        else:
            groups.append(([channel], value))
    return groups


# Rings and trees.


def ring_text(ring: List[int], ranks: Optional[int]) -> str:
    """As `step` draws a ring: each rank sends to the one behind it."""
    arrows = " -> ".join(map(str, ring))
    if ranks is None or len(ring) >= ranks:
        return f"{arrows} -> {ring[0]}"
    return f"{arrows} -> ... (the line has {len(ring)} of {ranks} ranks)"


def tree_text(tree: Dict[int, Tree], rank: int) -> str:
    """ "0 <- [1 <- 2, 4 <- 5]": to which rank each adds; the sum goes back the same way. Without
    recursion, for a chain may be long."""
    text, todo = "", [("", rank)]
    seen = set()
    while todo:
        before, at = todo.pop()
        if at < 0:
            text += before
            continue
        text += f"{before}{at}"
        children = tree[at][1] if at in tree and at not in seen else []
        seen.add(at)
        if len(children) == 1:
            todo.append((" <- ", children[0]))
        elif children:
            todo.append(("]", -1))
            todo += [(" <- [" if not i else ", ", child) for i, child in enumerate(children)][::-1]
    return text


def tree_lines(trees: Dict[int, Dict[int, Tree]], ranks: Optional[int]) -> List[str]:
    lines = []
    for channels, tree in alike(trees):
        where = channels_in_words(channels)
        roots = [rank for rank, (parent, _) in tree.items() if parent < 0]
        if len(roots) == 1 and len(tree) == ranks:
            lines.append(f"{where}: {tree_text(tree, roots[0])}")
        else:
            known = [
                f"rank {rank} {f'adds to {parent}' if parent >= 0 else 'is the root'}"
                + (f" and receives from {', '.join(map(str, children))}" if children else "")
                for rank, (parent, children) in sorted(tree.items())[:4]
            ]
            lines.append(
                f"{where}: the log has {len(tree)} of {ranks or '?'} ranks: {'; '.join(known)}"
                + ("; ..." if len(tree) > 4 else "")
            )
    return lines


def search_text(s: Search, over_network: bool) -> str:
    if not s.channels:
        return f"{s.kind}: none"
    text = f"{s.kind}: {counted(s.channels, 'channel')}, each {s.inside:g} GB/s {on(s.path_inside)}"
    return text + f", {s.between:g} GB/s to the network {on(s.path_between)}" * over_network


def kind_of(via: str) -> str:
    """ "P2P", "SHM", "NET/IB", "NET/Socket"."""
    if via == "direct shared memory":
        return "SHM"
    parts = via.split("/")
    return "/".join(parts[:2]) if parts[0] == "NET" else parts[0]


WAYS = {  # that are slow
    "SHM": "each byte goes into the CPU's memory and out again",
    "NET/Socket": "TCP sockets, which the CPU serves",
}


def edges_of(c: Communicator) -> Dict[Tuple[int, int], str]:
    """The connections that the rings use; all that the log has, where it has no ring."""
    known, used = c.connections(), set()
    for ring in c.rings().values():
        used |= set(zip(ring, ring[1:]))
        if len(ring) == c.ranks:
            used.add((ring[-1], ring[0]))
    return {edge: via for edge, via in known.items() if edge in used} or known


# Choices.


def in_our_words(how: How) -> str:
    return f"{NAMES.get(how[0], how[0])} {how[1]}"


def times_of(c: Optional[Communicator], call: str, size: Optional[int]) -> Dict[How, float]:
    """In us: latency and size over bandwidth, from the table in the log. Before the factors by which
    NCCL corrects trees and rings, which no line says."""
    table = c.model().get(call, {}) if c and size is not None else {}
    return {how: lat + size / (1e3 * rate) for how, (lat, rate) in table.items() if rate > 0}


def ours(
    machine: Optional[Machine], call: str, size: Optional[int], ranks: Optional[int]
) -> Dict[str, float]:
    """In us: the algorithms of `ringside simulate` on that machine."""
    name = CALLS.get(call)
    if not machine or not size or not ranks or ranks < 2 or name not in CLOSED_FORMS:
        return {}
    return {
        time.algorithm: time.seconds * 1e6
        for algorithm in algorithms_on(name, ranks, machine)
        for time in collective_times(name, algorithm, ranks, [size], machine)
    }


def choice_table(log: Log, c: Optional[Communicator], machine: Optional[Machine]) -> Table:
    """Columns in which nothing stands are only in JSON."""
    head = [
        words("call", "collective"),
        Column("size", "bytes", size_text),
        Column("calls", "calls"),
        words("NCCL took"),
        only_in_json("algorithm"),
        only_in_json("protocol"),
        Column("channels", "channels"),
        Column("NCCL's model\n(us)", "nccl_model_us", table_number),
        words("cheapest there"),
        only_in_json("nccl_cheapest"),
        Column("(us)", "nccl_cheapest_us", table_number),
        words("ours", "ours"),
        Column("(us)", "ours_us", table_number),
    ]
    rows: List[List[Any]] = []
    for choice, count in sorted(
        log.choices.items(), key=lambda item: (item[0].call, item[0].size or 0)
    ):
        call, size, how, channels, time = choice
        nccls, own = times_of(c, call, size), ours(machine, call, size, c.ranks if c else None)
        best, best_own = (min(times, key=times.__getitem__, default=None) for times in (nccls, own))
        rows.append(
            [
                CALLS.get(call, call or "?"),
                size,
                count,
                in_our_words(how),
                *how,
                channels,
                time or nccls.get(how),
                best and in_our_words(best),
                best,
                nccls.get(best),
                best_own,
                own.get(best_own),
            ]
        )
    shown = [
        column if any(row[i] is not None for row in rows) else only_in_json(column.key)
        for i, column in enumerate(head)
    ]
    return Table(shown, rows)


def model_lines(c: Communicator) -> List[str]:
    """The table of the model, for the calls that add or gather."""
    lines = []
    for call in ("AllReduce", "AllGather", "ReduceScatter"):
        table = c.model().get(call, {})
        told = [
            f"{in_our_words(how)} {lat:g} us + {rate:g} GB/s"
            for how, (lat, rate) in table.items()
            if rate
        ]
        if told:
            lines.append(f"{CALLS[call]}: {', '.join(told)}")
    return lines


# What limits it.


def limits(log: Log, all_of: List[Communicator], xml: List[Any]) -> List[str]:
    """Sentences, each from a line of the log or an attribute of a file."""
    found: List[str] = []
    for c in all_of:
        found += limits_of(c, f" of {c.ranks or '?'} ranks" if len(all_of) > 1 else "")
    for text, count in log.remarks.items():
        found.append(f'NCCL says{f" {count} times" if count > 1 else ""}: "{visible(text)}"')
    if log.network and log.network.lower() == "socket":
        found.append("NCCL found no other network than TCP sockets (Using network Socket)")
    for file in xml:
        if isinstance(file, Topology):
            found += limits_of_topology(file)
    decided = {key: value for key, value in log.settings.items() if DECIDING.match(key)}
    if decided:
        told = ", ".join(f"{key}={value}" for key, value in decided.items())
        found.append(f"the environment decides or narrows the choice: {visible(told)}")
    return found


def limits_of(c: Communicator, which: str) -> List[str]:
    found = []
    edges = edges_of(c)
    ways = Counter(map(kind_of, edges.values()))
    for way, count in ways.items():
        if way in WAYS:
            found.append(
                f"{count} of {counted(len(edges), 'connection')}{which} in the log "
                f"{'goes' if count == 1 else 'go'} by {way}: {WAYS[way]}"
            )
    bare = [via for via in edges.values() if kind_of(via) == "NET/IB" and "GDRDMA" not in via]
    if bare:
        found.append(
            f"{counted(len(bare), 'connection')} over the network without GDRDMA: the card does not "
            "reach the GPU's memory, so each byte goes through the CPU's memory"
        )
    for s in (each for each in c.searches() if each.kind == "ring" and each.channels):
        inside = s.channels * s.inside
        between = s.channels * s.between if c.over_network() else inside
        where = (
            "" if inside == between else ", to the network" if between < inside else ", in a host"
        )
        found.append(f"the ring{which}: at most {min(inside, between):g} GB/s by the search{where}")
    hosts = c.host_of()
    for channels, ring in alike(c.rings()):
        if len(ring) != c.ranks or not all(rank in hosts for rank in ring):
            continue
        crossings = sum(hosts[a] != hosts[b] for a, b in zip(ring, [*ring[1:], ring[0]]))
        needed = len(set(hosts.values()))
        if needed > 1 and crossings > needed:
            found.append(
                f"the ring of {channels_in_words(channels)} goes from host to host {crossings} times, "
                f"where {needed} would do"
            )
    for (algorithm, protocol), (_, rate) in c.model().get("AllReduce", {}).items():
        if algorithm == "RING" and rate == 0:
            found.append(
                f"NCCL's model has the ring of an all_reduce without {protocol} (bandwidth 0)"
            )
    return found


def limits_of_topology(topology: Topology) -> List[str]:
    found = []
    for kind, name in (("gpu", "GPU"), ("net", "network card")):
        same = [each for each in topology.devices if each.kind == kind]
        links = Counter(each.link() for each in same if each.link())
        if len(links) > 1:
            told = ", ".join(f"{count} with {link}" for link, count in links.items())
            found.append(f"{name}s have PCIe links of different speed: {told}")
        apart = [str(each.number) for each in same if each.direct is False]
        if apart:
            found.append(
                f"{name} {', '.join(apart)}: no direct transfer between GPU and network card (gdr=0)"
            )
    return found


# The report.


Section = Tuple[str, Optional[List[str]]]  # with an empty list it is left out; None: a heading


def first_of(counts: Counter, most: int, text: Callable[[Any, int], str]) -> List[str]:
    """The most frequent, and how many others there are."""
    lines = [text(each, count) for each, count in counts.most_common(most)]
    more = len(counts) - len(lines)
    return lines + ([f"... and {more} more; --json has them"] if more else [])


def times(text: str, count: int) -> str:
    return visible(text) + (f" ({count} times)" if count > 1 else "")


def head_of(c: Communicator) -> str:
    channels = next((each.channels for each in c.sessions if each.channels), None)
    said = len({each.rank for each in c.sessions if each.rank is not None})
    return (
        f"Communicator of {counted(c.ranks, 'rank') if c.ranks else 'an unknown number of ranks'}"
        + (f" on {counted(c.hosts, 'host')}" if c.hosts else "")
        + (f", {counted(channels, 'channel')}" if channels else "")
        + (f"; the log has {said} of them" if c.ranks and said < c.ranks else "")
    )


def sections_of_communicator(c: Communicator) -> List[Section]:
    rings = [
        f"{channels_in_words(channels)}: {ring_text(ring, c.ranks)}"
        for channels, ring in alike(c.rings())
        if ring
    ]
    searches = [search_text(each, c.over_network()) for each in c.searches() if each.channels]
    ways = first_of(Counter(edges_of(c).values()), 8, lambda via, n: f"{n} via {visible(via)}")
    return [
        ("Rings: each rank sends to the next", rings),
        ("Trees: each rank adds to the left; the sum comes back", tree_lines(c.trees(), c.ranks)),
        ("Connections", ways),
        ("The search found", searches),
        ("NCCL's model: latency + bytes / bandwidth of the buffer", model_lines(c)),
    ]


def sections_of_xml(name: str, content: Any) -> List[Section]:
    if isinstance(content, Topology):
        head = ("device", "rank", "name", "NUMA", "PCIe link", "NVLinks", "Gbit/s", "gdr")
        table = Table([words(each) for each in head])
        for d in content.devices:
            cells = (
                f"{d.kind} {d.number}",
                d.rank,
                visible(d.name),
                d.numa,
                d.link(),
                d.nvlinks or None,
                d.gbits,
                d.direct,
            )
            table.rows.append(list(cells))
        return [(f"{name}: the topology of a host", table.text().splitlines())]
    found: List[Section] = [(f"{name}: the graphs of NCCL's search", None)]
    for graph in content:
        paths = alike(dict(enumerate(graph.paths)))
        lines = [f"{channels_in_words(each)}: {' -> '.join(places)}" for each, places in paths]
        found.append((search_text(graph.search, True), lines or None))
    return found


def lines_of_choices(table: Table, machine: Optional[Machine]) -> List[str]:
    if not table.rows:
        return [f"  the log does not say: NCCL prints it since 2.20 with {HOW_TO_LOG}"]
    lines = table.text().splitlines()
    if any(row["nccl_cheapest"] for row in table.json()):
        lines += [
            "  NCCL's model: its time for what it took; cheapest there: the least of its table. Both",
            "  without the factors by which it corrects trees and rings, which no line says.",
        ]
    if machine and any(row["ours"] for row in table.json()):
        lines.append(f"  ours: the fastest of `ringside simulate` on {machine.name}.")
    return lines


def sections_of(
    log: Log,
    xml: Dict[str, Any],
    table: Table,
    machine: Optional[Machine],
    all_of: List[Communicator],
    bounds: List[str],
) -> List[Section]:
    def of_call(key: Tuple[str, int, int], count: int) -> str:
        call, size, ranks = key
        return f"{count} x {CALLS.get(call, call)} of {size_text(size)} on {counted(ranks, 'rank')}"

    links: Dict[str, Dict[str, None]] = {}
    for (kind, node), speed in log.links.items():
        links.setdefault(kind, {})[f"{node} {speed:g}"] = None
    found: List[Section] = []
    for c in all_of:
        found += [(head_of(c), None), *sections_of_communicator(c)]
    if log.of_nccl:
        found.append(("What it took for each size", lines_of_choices(table, machine)))
    found.append(
        (
            "Links of the topology, GB/s",
            [f"{kind}: {', '.join(each)}" for kind, each in links.items()],
        )
    )
    found.append(("Calls", first_of(log.calls, 12, of_call)))
    for name, content in xml.items():
        found += sections_of_xml(name, content)
    return [
        *found,
        ("What limits it, by these lines", bounds),
        ("Warnings of NCCL", first_of(log.warnings, 8, times)),
        ("Not understood", first_of(log.unread, 8, lambda text, n: f"{n} x {visible(text)}")),
    ]


def report_of(
    log: Log, xml: Dict[str, Any], machine: Optional[Machine]
) -> Tuple[str, Dict[str, Any]]:
    all_of = communicators(log)
    one = next((c for c in all_of if c.model()), all_of[0] if all_of else None)
    table, bounds = choice_table(log, one, machine), limits(log, all_of, list(xml.values()))
    version = log.version or "NCCL, a version that the log does not say"
    text = (
        f"{version}: {counted(log.of_nccl, 'message')} in {counted(log.lines, 'line')}\n"
        if log.of_nccl
        else ""
    )
    for title, lines in sections_of(log, xml, table, machine, all_of, bounds):
        if lines != []:
            text += f"\n{title}\n"
        for line in lines or ():
            text += f"{line}\n" if line.startswith("  ") else f"  {wrap(line, 98, 4)}\n"
    return text.lstrip("\n"), {
        "version": log.version,
        "lines_of_nccl": log.of_nccl,
        "communicators": [communicator_json(c) for c in all_of],
        "choices": table.json(),
        "calls": [
            {"collective": CALLS.get(call, call), "bytes": size, "ranks": ranks, "calls": count}
            for (call, size, ranks), count in log.calls.items()
        ],
        "settings": log.settings,
        "limits": bounds,
        "warnings": dict(log.warnings),
        "not_understood": dict(log.unread),
    }


def communicator_json(c: Communicator) -> Dict[str, Any]:
    return {
        "ranks": c.ranks,
        "hosts": c.hosts,
        "rings": [{"channel": channel, "ranks": ring} for channel, ring in c.rings().items()],
        "trees": [
            {
                "channel": channel,
                "parents": {str(rank): parent for rank, (parent, _) in tree.items()},
            }
            for channel, tree in c.trees().items()
        ],
        "connections": [
            {"from": a, "to": b, "via": via} for (a, b), via in sorted(c.connections().items())
        ],
        "searches": [each._asdict() for each in c.searches()],
        "model": [
            {
                "collective": CALLS.get(call, call),
                "algorithm": algorithm,
                "protocol": protocol,
                "latency_us": latency,
                "bandwidth_gbps": rate,
            }
            for call, row in c.model().items()
            for (algorithm, protocol), (latency, rate) in row.items()
        ],
    }


# The command.


def lines_of(file: str, stream: IO[bytes]) -> Iterator[str]:
    """Up to MOST_LOG_BYTES."""
    left = MOST_LOG_BYTES
    while left > 0:
        line = stream.readline(min(left, 1 << 20))
        if not line:
            return
        left -= len(line)
        yield line.decode("utf-8", "replace")
    raise RingsideError(f"{file} has more than {MOST_LOG_BYTES} bytes: cut out the lines with NCCL")


def read_file(file: str, xml: Dict[str, Any]) -> Iterator[str]:
    """The lines of a text or a .gz; nothing of XML, which is added to `xml`."""
    # A pipe is read once: its beginning is looked at, and stays.
    with gzip.open(file, "rb") if file.endswith(".gz") else open(file, "rb") as stream:
        if not stream.peek(512).lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"<"):
            yield from lines_of(file, stream)
            return
        data = stream.read(MOST_BYTES)
    try:
        xml[Path(file).name] = read_xml(data)
    except Unreadable as error:
        raise RingsideError(f"{file} cannot be used: {visible(str(error))}") from None


def run(args: argparse.Namespace) -> None:
    if not args.files:
        raise UsageError("name a log of NCCL, or XML that it wrote")
    machine = find_machine(args.topology) if args.topology else None
    xml: Dict[str, Any] = {}

    def all_lines() -> Iterator[str]:
        for file in args.files:
            try:
                yield from read_file(file, xml)
            except (OSError, EOFError, zlib.error) as error:
                raise RingsideError(
                    f"cannot read {file}: {getattr(error, 'strerror', None) or error}"
                ) from None

    log = read_log(all_lines())
    if not log.of_nccl and not xml:
        raise RingsideError(
            f"{', '.join(args.files)}: no line of NCCL among {log.lines}. Run the program with "
            + HOW_TO_LOG
        )
    text, data = report_of(log, xml, machine)
    print(text, end="", file=text_beside(args.json))
    if args.json:
        write_json_file(args.json, data)


NOTES = """
The log: what a program prints with
  NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING
of one rank or of all; rank 0 says most. COLL adds the calls. Beside it NCCL
writes the topology of the host and its graphs as XML:
  NCCL_TOPO_DUMP_FILE=topo.xml NCCL_GRAPH_DUMP_FILE=graph.xml

A ring, double_tree or pat is that of `ringside step`. The command guesses
nothing that a line does not say, and counts lines of unknown form at the end.
What limits it names links, transports and settings that the log itself names.
Files are only read: nothing in them is executed.

Examples:
  ringside nccl nccl.log
      rings, trees and what NCCL took for each size
  ringside nccl nccl.log topo.xml graph.xml --topology h100
      the same beside the topology, and the times of `ringside simulate`
"""

COMMAND = Command(
    "nccl",
    "Explain a log of NCCL: its rings and trees, what it chose for each size, and what limits it",
    run,
    [
        Words("files FILE", "Logs, topologies and graphs, in any order"),
        Option(
            "--topology NAME",
            f"A machine of `ringside simulate`, for times beside NCCL's: {', '.join(machine_names())}, "
            "or a JSON file",
        ),
        JSON_OPTION,
    ],
    NOTES,
)
