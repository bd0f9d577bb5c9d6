"""An algorithm of one's own as a Python function: the steps of a rank.

    @ringside.algorithm("all_reduce", sizes=(2, 4, 8), chunks=1)
    def doubling(rank, size):
        distance = 1
        while distance < size:
            yield send(rank ^ distance, 0) | receive(rank ^ distance, 0)
            distance *= 2

    ringside.prove(algorithm=doubling)

A step is a dictionary as in the file of `--algorithm FILE` (docs/your_own.md), and {} a step in
which the rank does nothing.
"""

import json
import os
import tempfile
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Union

Step = Dict[str, Dict[str, Any]]
StepsOfRank = Callable[[int, int], Iterable[Step]]  # of a rank, and how many ranks there are
Sizes = Sequence[int]
Chunks = Union[None, int, Callable[[int], int]]


def send(to: int, first: int, count: int = 1, **more: int) -> Step:
    """The part of a step that sends `count` chunks to rank `to`, from chunk `first` on."""
    return {"send": {"to": to, "first": first, "count": count, **more}}


def receive(source: int, first: int, count: int = 1, action: str = "add", **more: int) -> Step:
    """The part that receives them from rank `source`; action: "add" or "overwrite"."""
    return {"receive": {"from": source, "first": first, "count": count, "action": action, **more}}


class Algorithm(os.PathLike):
    """A function (rank, size) -> steps for some numbers of ranks. It is also the path of its file,
    which exists as long as this object: pass it to any command, copy it with shutil.copy, or name
    it in RINGSIDE_ALGORITHM."""

    def __init__(
        self, steps: StepsOfRank, collective: str, sizes: Sizes, chunks: Chunks, root: Optional[int]
    ):
        self.steps, self.collective, self.sizes, self.root = steps, collective, sizes, root
        self.chunks = chunks if callable(chunks) else lambda size: chunks or size
        self.__name__, self.__doc__ = steps.__name__, steps.__doc__
        self._folder = None

    def __call__(self, rank: int, size: int) -> List[Step]:
        return list(self.steps(rank, size))

    def schedules(self, size: int) -> List[Dict[str, Any]]:
        """Those of all ranks. One that has fewer steps than others does nothing in the last."""
        steps = [self(rank, size) for rank in range(size)]
        most = max(map(len, steps))
        return [
            {"chunks": self.chunks(size), "steps": each + [{}] * (most - len(each))}
            for each in steps
        ]

    def cases(self) -> List[Dict[str, Any]]:
        """What the file has: the schedules for each number of ranks."""
        root = {} if self.root is None else {"root": self.root}
        return [
            {"collective": self.collective, **root, "schedules": self.schedules(size)}
            for size in self.sizes
        ]

    def __fspath__(self) -> str:
        path = self._folder and os.path.join(self._folder.name, self.__name__ + ".json")
        if path is None:
            text = json.dumps(self.cases())  # first: it may raise
            self._folder = tempfile.TemporaryDirectory(prefix="ringside")
            path = os.path.join(self._folder.name, self.__name__ + ".json")
            with open(path, "w") as file:
                file.write(text)
        return path


def algorithm(
    collective: str, sizes: Sizes = range(2, 9), chunks: Chunks = None, root: Optional[int] = None
) -> Callable[[StepsOfRank], Algorithm]:
    """Makes an Algorithm of the function below it. `sizes`: for how many ranks; `chunks`: into how
    many the buffer is divided, a number or a function of the ranks [as many as there are ranks];
    `root`: of a broadcast, reduce, gather or scatter [0]."""
    return lambda steps: Algorithm(steps, collective, sizes, chunks, root)
