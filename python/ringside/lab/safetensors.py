"""Arrays of safetensors files as numbers, without a package. The format is drawn in
transformer/checkpoint/safetensors.hpp."""

import json
import math
import os
import struct
from pathlib import Path
from typing import Any, Dict, NamedTuple, Sequence, Tuple

from ringside.library import RingsideError

# The types that Ringside reads, and their codes in struct. BF16 is the upper half of an F32.
CODES = {"F64": "d", "F32": "f", "F16": "e", "BF16": "H", "I64": "q", "I32": "i", "U8": "B"}


class Stored(NamedTuple):
    """An array in a file."""

    path: Path
    type: str  # "F32"
    shape: Tuple[int, ...]
    begin: int  # its first byte in the file

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def bytes(self, first: int, count: int) -> bytes:
        """Of `count` elements, or of those that there are, from element `first` on."""
        size, count = struct.calcsize(CODES[self.type]), min(count, self.elements - first)
        with open(self.path, "rb") as file:
            file.seek(self.begin + first * size)
            return file.read(count * size)

    def numbers(self, data: bytes) -> Sequence[float]:
        """The numbers of these bytes."""
        numbers = struct.unpack(
            f"<{len(data) // struct.calcsize(CODES[self.type])}{CODES[self.type]}", data
        )
        if self.type != "BF16":
            return numbers
        words = struct.pack(f"<{len(numbers)}I", *(number << 16 for number in numbers))
        return struct.unpack(f"<{len(numbers)}f", words)

    def index(self, element: int) -> Tuple[int, ...]:
        """Its row, column and so on."""
        index: Tuple[int, ...] = ()
        for extent in reversed(self.shape):
            element, place = divmod(element, extent)
            index = (place, *index)
        return index


class File(NamedTuple):
    arrays: Dict[str, Stored]
    metadata: Dict[str, str]


def _array(path: Path, name: str, entry: Any, data: int, size: int) -> Stored:
    """What the header says of an array, in a file of `size` bytes whose numbers begin at `data`."""
    (begin, end), shape = entry["data_offsets"], entry["shape"]
    if not all(isinstance(number, int) and number >= 0 for number in (begin, end, *shape)):
        raise TypeError
    array = Stored(path, entry["dtype"], tuple(shape), data + begin)
    if array.type not in CODES:
        raise ValueError(f"{name} is of type {array.type}, which Ringside does not read")
    if end - begin != array.elements * struct.calcsize(CODES[array.type]):
        raise ValueError(f"the shape of {name} does not fit its data_offsets")
    if data + end > size:
        raise ValueError(f"{name} ends at byte {data + end} of {size}: the file was cut short")
    return array


def read(path: Path) -> File:
    """The header of a file. Numbers are read when they are asked for."""
    try:
        with open(path, "rb") as file:
            size, length = os.fstat(file.fileno()).st_size, int.from_bytes(file.read(8), "little")
            if length > size - 8:
                raise ValueError(f"a header of {length} bytes does not fit into {size} bytes")
            header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        arrays = {
            name: _array(path, name, entry, 8 + length, size) for name, entry in header.items()
        }
    except OSError as error:
        raise RingsideError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise RingsideError(f"cannot read {path} as safetensors: {error}") from None
    except (AttributeError, KeyError, TypeError, RecursionError):
        raise RingsideError(
            f"cannot read {path} as safetensors: each array needs a dtype, a shape and data_offsets"
        ) from None
    return File(arrays, metadata)
