"""Two folders of arrays, compared one by one: of `ringside train --dump`, or two checkpoints."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

from ringside.command_line import counted
from ringside.lab import safetensors
from ringside.lab.report import Figure
from ringside.lab.safetensors import Stored
from ringside.lab.tables import Column, Table, only_in_json, words
from ringside.library import RingsideError

PIECE = 1 << 18  # elements that are compared at once
# The largest error of rounding a number, relative to it. And what the order of additions explains
# of an array after one step: so many times as much on average, at most this share. Measured is 11.
ROUNDING = {"F64": 2**-53, "F32": 2**-24, "F16": 2**-11, "BF16": 2**-8}
TIMES, SHARE = 1000, 0.02


class Apart(NamedTuple):
    """How far two arrays are apart."""

    largest: float = 0.0
    element: int = 0  # where
    relative: float = 0.0  # the mean difference, divided by the mean size of the numbers


@dataclass
class Difference:
    """Of an array, in the first step that is compared and in the step with the largest."""

    name: str
    of: Stored
    first: Apart
    most: Apart
    step: int

    def row(self, prefix: str) -> List[Any]:
        """Of a table that leaves this prefix out."""
        name, shape, (largest, element, relative) = self.name, list(self.of.shape), self.most
        if not largest > 0:
            return [name[len(prefix) :], 0.0, None, None, None, None, shape]
        index = self.of.index(element)
        where = ",".join(map(str, index))
        return [
            name[len(prefix) :],
            largest,
            relative,
            self.step or None,
            where,
            list(index),
            shape,
        ]

    def is_rounding(self) -> bool:
        return self.first.relative <= min(TIMES * ROUNDING.get(self.of.type, 0.0), SHARE)


def _apart(x: float, y: float) -> float:
    """Infinite if only one of them is no finite number."""
    apart = abs(x - y)
    return apart if apart == apart else 0.0 if x == y or (x != x and y != y) else math.inf


def compare_two(a: Stored, b: Stored) -> Apart:
    found, total, size = Apart(), 0.0, 0.0
    for first in range(0, a.elements, PIECE):
        of_a, of_b = a.bytes(first, PIECE), b.bytes(first, PIECE)
        x = a.numbers(of_a)
        size += sum(map(abs, x))
        if of_a == of_b and a.type == b.type:
            continue
        y = b.numbers(of_b)
        apart = [abs(p - q) for p, q in zip(x, y)]
        if not math.isfinite(sum(apart)):
            apart = list(map(_apart, x, y))
        total += sum(apart)
        if max(apart) > found.largest:
            found = Apart(max(apart), first + apart.index(max(apart)))
    return found._replace(relative=total / size if size else math.inf) if total else found


def holds_arrays(path: str) -> bool:
    return Path(path).is_dir() or path.endswith(".safetensors")


def arrays_by_step(path: Path) -> Dict[int, Dict[str, Stored]]:
    """The arrays of each step of a folder of --dump. Those of a checkpoint, or of a file, are of
    step 0."""
    if path.is_file():
        return {0: safetensors.read(path).arrays}
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else []
    named = {file: re.fullmatch(r"step(\d+)", file.stem) for file in files}
    steps = {int(name[1]): safetensors.read(file).arrays for file, name in named.items() if name}
    if steps:
        return steps
    model = [safetensors.read(file).arrays for file in files if file.name.startswith("model")]
    if model:
        return {0: {name: array for arrays in model for name, array in arrays.items()}}
    raise RingsideError(
        f"{path} is no folder with step0001.safetensors and so on, as `ringside train --dump` writes "
        "them, or with model.safetensors, as --save does"
    )


def _require_same_arrays(
    a: Path, of_a: Dict[str, Stored], b: Path, of_b: Dict[str, Stored]
) -> None:
    for one, names, other, others in ((a, of_a, b, of_b), (b, of_b, a, of_a)):
        for name in names:
            if name not in others:
                raise RingsideError(f"{other} has no {name}, but {one} has")
    for name, array in of_a.items():
        if array.shape != of_b[name].shape:
            shapes = f"{list(array.shape)} in {a} and {list(of_b[name].shape)} in {b}"
            raise RingsideError(f"{name} has the shape {shapes}: these are two models")


def common_steps(a: Path, of_a: Dict[int, Any], b: Path, of_b: Dict[int, Any]) -> List[int]:
    if (0 in of_a) != (0 in of_b):
        dump, other = (b, a) if 0 in of_a else (a, b)
        raise RingsideError(
            f"{dump} is a folder of --dump and {other} a checkpoint: name two of a kind"
        )
    common = sorted(of_a.keys() & of_b.keys())
    if not common:
        ranges = [f"{path} has steps {min(of)} to {max(of)}" for path, of in ((a, of_a), (b, of_b))]
        raise RingsideError(f"the folders have no step in common: {', '.join(ranges)}")
    return common


def differences(a: Path, b: Path) -> Tuple[List[Difference], List[int]]:
    """Of each array, in the order of the first file; and the steps that were compared."""
    of_a, of_b = arrays_by_step(a), arrays_by_step(b)
    steps, found = common_steps(a, of_a, b, of_b), {}  # type: List[int], Dict[str, Difference]
    for step in steps:
        _require_same_arrays(a, of_a[step], b, of_b[step])
        for name, array in of_a[step].items():
            apart = compare_two(array, of_b[step][name])
            each = found.setdefault(name, Difference(name, array, apart, apart, step))
            if apart.largest > each.most.largest:
                each.most, each.step = apart, step
    if not found:
        raise RingsideError(f"{a} and {b} hold no arrays")
    return list(found.values()), steps


WHY = (
    "Why it is not zero: the runs add the same numbers in another order, as another number of ranks, "
    "threads or buckets does, and each sum is rounded: (a + b) + c is not a + (b + c). AdamW makes "
    'more of it where a gradient is near zero (docs/failures.md, "Why it is not zero").'
)
TOO_MUCH = (
    "The order of additions does not make so much of it: do both runs have the same model, text, "
    "batch, seed and options, and does neither compress gradients? (Over many steps rounding grows: "
    "compare the first, with --dump.)"
)


def in_words(found: List[Difference], steps: List[int]) -> str:
    """What the differences say, and why they are not zero."""
    worst, first = max(found, key=_largest), max(found, key=lambda each: each.first.relative)
    of, where = counted(len(found), "array"), ""
    if steps != [0]:
        of, where = f"{of} of {counted(len(steps), 'step')}", f"In step {steps[0]} the "
    if not _largest(worst) > 0:
        return f"All {of} are equal, bit for bit."
    differ = sum(_largest(each) > 0 for each in found)
    return (
        f"{differ} of {of} differ, at most by {_largest(worst):.2g}: {worst.name}.\n"
        f"{where or 'The '}mean difference is at most {first.first.relative:.2g} of the mean number: "
        f"{first.name}.\n{WHY if all(each.is_rounding() for each in found) else TOO_MUCH}"
    )


def _largest(each: Difference) -> float:
    return each.most.largest


def compare_arrays(a: Path, b: Path) -> Tuple[List[Figure], Any, float]:
    """Figures, rows for other programs, and the largest difference."""
    found, steps = differences(a, b)
    head = [
        words("", "name"),
        Column("largest", "largest_difference", lambda value: f"{value:.2g}"),
        Column("relative", "relative_difference", lambda value: f"{value:.2g}"),
        Column("step", "step") if steps != [0] else only_in_json("step"),
        Column("where"),
        only_in_json("index"),
        only_in_json("shape"),
    ]
    parts = (
        {"": "Parameters"}
        if steps == [0]
        else {"parameter.": "Parameters", "gradient.": "Gradients"}
    )
    figures = []
    for prefix, title in parts.items():
        rows = [each.row(prefix) for each in found if each.name.startswith(prefix)]
        figures.append(Figure(f"{title}: the largest difference", None, "", Table(head, rows, 0)))
    figures[-1].caption = in_words(found, steps)
    table = Table(head, [each.row("") for each in found])
    return figures, table.json(), max(map(_largest, found))
