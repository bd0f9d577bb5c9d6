"""Reads the XML that NCCL writes: the topology of a host (NCCL_TOPO_DUMP_FILE) and the graphs of its
search (NCCL_GRAPH_DUMP_FILE).

    <system version="1"><cpu numaid="0"><pci busid="0000:0f:00.0" link_speed="16.0 GT/s PCIe"
      link_width="16"><gpu dev="0" rank="0" gdr="1"><nvlink target="..." count="12"/></gpu></pci>...
    <graphs version="1"><graph id="0" pattern="4" nchannels="2" speedintra="20" ...>
      <channel><net dev="0"/><gpu dev="0"/><gpu dev="1"/><net dev="0"/></channel>...

Source of the forms: NCCL 2.28, src/graph/xml.cc, topo.cc and search.cc.
"""

import math
import re
from dataclasses import dataclass
from typing import List, NoReturn, Optional, Union
from xml.etree import ElementTree

from ringside.lab.nccl_log import Search
from ringside.library import RingsideError

MOST_BYTES = 16 << 20
KINDS = ("ring", "tree", "collnet", "nvls", "collnet_direct")  # [id of a graph]


class Unreadable(RingsideError):
    """What a file is not."""


def fail(sentence: str) -> NoReturn:
    raise Unreadable(sentence)


@dataclass
class Device:
    """A GPU or a network card, and the PCI link to it as the file tells it ("" if not)."""

    kind: str  # "gpu" or "net"
    number: int
    rank: Optional[int]
    name: str
    numa: str
    link_speed: str
    link_width: str
    nvlinks: int
    gbits: Optional[float]  # of a card, 10^9 bits per second
    direct: Optional[bool]  # it and the other kind reach each other's memory (gdr)

    def link(self) -> str:
        return (
            f"{self.link_speed.replace(' PCIe', '')} x{self.link_width}" if self.link_speed else ""
        )


@dataclass
class Graph:
    search: Search
    paths: List[List[str]]  # of each channel within the host: "net 1", "gpu 0", ...


@dataclass
class Topology:
    devices: List[Device]


def root_of(data: bytes) -> ElementTree.Element:
    """Entities are refused, because they can fill the memory, and so is every encoding but UTF-8."""
    if len(data) > MOST_BYTES:
        fail(f"it has {len(data)} bytes; at most {MOST_BYTES} are read")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        fail("expected UTF-8")
    declared = re.search(r"<!(?!--)\w*", text)
    if declared:
        fail(f"expected elements, not {declared[0]}")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        fail(f"expected XML, but: {error}")


def number_of(element: ElementTree.Element, key: str, hexadecimal: bool = False) -> float:
    seen = element.get(key)
    if seen is None:
        fail(f"<{element.tag}> has no {key}")
    try:
        value = int(seen, 16) if hexadecimal else float(seen)
        if math.isfinite(value):
            return value
    except ValueError:
        pass
    fail(f"<{element.tag}> has {key}='{seen[:20]}', but a number is expected")


def devices_of(root: ElementTree.Element) -> List[Device]:
    found: List[Device] = []
    above: List[tuple] = [(root, "", "", "")]  # element, NUMA node, speed and width of its PCI link
    while above:
        element, numa, speed, width = above.pop()
        numa = element.get("numaid", numa) if element.tag == "cpu" else numa
        if element.tag == "pci":
            speed, width = element.get("link_speed", ""), element.get("link_width", "")
        if element.tag in ("gpu", "net"):
            nvlinks = sum(int(number_of(each, "count")) for each in element.iter("nvlink"))
            rank = int(number_of(element, "rank")) if "rank" in element.attrib else None
            is_card = element.tag == "net"
            found.append(
                Device(
                    element.tag,
                    int(number_of(element, "dev")),
                    rank,
                    element.get("name", ""),
                    numa,
                    speed,
                    width,
                    nvlinks,
                    number_of(element, "speed") / 1e3
                    if is_card and "speed" in element.attrib
                    else None,
                    element.get("gdr") == "1" if "gdr" in element.attrib else None,
                )
            )
        above += [(each, numa, speed, width) for each in element]
    return sorted(found, key=lambda each: (each.kind, each.number))


def graphs_of(root: ElementTree.Element) -> List[Graph]:
    found = []
    for graph in root.findall("graph"):
        kind = int(number_of(graph, "id"))
        search = Search(
            KINDS[kind] if 0 <= kind < len(KINDS) else f"graph {kind}",
            int(number_of(graph, "nchannels")),
            number_of(graph, "speedintra"),
            number_of(graph, "speedinter"),
            graph.get("typeintra", "?"),
            graph.get("typeinter", "?"),
        )
        paths = [
            [f"{each.tag} {int(number_of(each, 'dev', hexadecimal=True))}" for each in channel]
            for channel in graph.findall("channel")
        ]
        found.append(Graph(search, paths))
    return found


def read_xml(data: bytes) -> Union[Topology, List[Graph]]:
    root = root_of(data)
    if root.tag == "system":
        return Topology(devices_of(root))
    if root.tag == "graphs":
        return graphs_of(root)
    fail(
        f"<{root.tag}> is neither a topology, <system>, nor graphs, <graphs>: NCCL writes them where "
        "NCCL_TOPO_DUMP_FILE and NCCL_GRAPH_DUMP_FILE say"
    )
