"""A network of links between ranks, for which an algorithm is sought (lab/synthesize.py)."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, Optional, Tuple

from ringside.library import RingsideError
from ringside.planning.json_fields import shown

Link = Tuple[int, int]  # from, to


@dataclass(frozen=True)
class Network:
    """`links` has the width of each link: the chunks that it carries in a round."""

    name: str
    size: int
    links: Dict[Link, int]

    def backwards(self) -> "Network":
        return Network(self.name, self.size, {(b, a): w for (a, b), w in self.links.items()})


def both_ways(pairs: Iterable[Link], width: int = 1) -> Dict[Link, int]:
    return {link: width for a, b in pairs for link in ((a, b), (b, a))}


def dgx1() -> Network:
    """Two squares of four GPUs with their diagonals, joined at the corners; half of the links are
    double. Source: NVIDIA, "DGX-1 with Tesla V100 system architecture", figure 4."""
    links: Dict[Link, int] = {}
    for a in (0, 4):
        for b, c, width in ((0, 1, 1), (0, 2, 1), (0, 3, 2), (1, 2, 2), (1, 3, 1), (2, 3, 2)):
            links.update(both_ways([(a + b, a + c)], width))
    for corner in range(4):
        links.update(both_ways([(corner, corner + 4)], 2 if corner < 2 else 1))
    return Network("dgx1", 8, links)


def network_named(name: str, size: Optional[int] = None) -> Network:
    """ "ring" (both ways), "line", "star" (around node 0), "full", each of `size` nodes [4];
    "dgx1": the 8 GPUs of a DGX-1, with six NVLinks each; or a file FILE.json."""
    nodes = range(size or 4)
    shapes = {
        "ring": [(node, (node + 1) % len(nodes)) for node in nodes],
        "line": [(node, node + 1) for node in nodes[:-1]],
        "star": [(0, node) for node in nodes[1:]],
        "full": [(a, b) for a in nodes for b in nodes[a + 1 :]],
    }
    if name in shapes:
        network = Network(name, len(nodes), both_ways(shapes[name]))
    else:
        network = dgx1() if name == "dgx1" else network_of_file(name)
    if size not in (None, network.size):
        raise RingsideError(
            f"the network {name} has {network.size} nodes, not {size}: leave out -n"
        )
    if not 2 <= network.size <= 64:
        raise RingsideError(f"a network has 2 to 64 nodes, not {network.size}")
    return network


def network_of_file(file: str) -> Network:
    """{"ranks": 3, "links": [[0, 1], [1, 2, 2]]}: from, to and perhaps the width. A link that
    stands twice is as wide as both."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise RingsideError(
            f"there is no network '{file}': choose ring, line, star, full, dgx1 or a JSON file"
        ) from None
    links: Dict[Link, int] = {}
    try:
        told = json.loads(text)
        size, rows = (told.get("ranks"), told.get("links")) if isinstance(told, dict) else (0, 0)
        if type(size) is not int or not isinstance(rows, list):
            raise ValueError('expected {"ranks": N, "links": [[from, to], [from, to, width], ...]}')
        for row in rows:
            if not isinstance(row, list) or len(row) not in (2, 3) or {*map(type, row)} != {int}:
                raise ValueError(f"a link is [from, to] or [from, to, width], not {shown(row)}")
            a, b, width = (*row, 1)[:3]
            if not (0 <= a < size and 0 <= b < size and a != b and width >= 1):
                raise ValueError(
                    f"the link {shown(row)} needs two nodes of 0 to {size - 1} and a width of at "
                    "least 1"
                )
            links[a, b] = links.get((a, b), 0) + width
    except (ValueError, RecursionError) as error:
        raise RingsideError(f"the network {file} cannot be used: {error}") from None
    return Network(file, size, links)
