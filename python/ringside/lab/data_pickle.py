"""Pickles of data alone: dictionaries, lists, tuples, texts and numbers.

A pickle is a program: its opcodes may name functions to call, or make an Unpickler reserve any
amount of memory. So all opcodes are looked at before the first one runs, and one that does more
than make data is refused. Source of the format: Lib/pickletools.py.
"""

import io
import pickle
import re
from typing import Any, NoReturn

FIXED = {  # opcodes of data, by the number of bytes that follow each
    0: pickle.MARK
    + (pickle.NONE + pickle.NEWTRUE + pickle.NEWFALSE)
    + (pickle.EMPTY_DICT + pickle.EMPTY_LIST + pickle.EMPTY_TUPLE)
    + (pickle.TUPLE + pickle.TUPLE1 + pickle.TUPLE2 + pickle.TUPLE3)
    + (pickle.APPEND + pickle.APPENDS + pickle.SETITEM + pickle.SETITEMS + pickle.MEMOIZE),
    1: pickle.PROTO + pickle.BININT1 + pickle.BINPUT + pickle.BINGET,
    2: pickle.BININT2,
    4: pickle.BININT + pickle.LONG_BINGET,
    8: pickle.BINFLOAT + pickle.FRAME,
}
COUNTED = {pickle.LONG1: 1, pickle.SHORT_BINUNICODE: 1, pickle.BINUNICODE: 4}  # bytes of the length
RUN = re.compile(  # of opcodes whose length is known
    b"(?:%s){0,500}"
    % b"|".join(
        [b"[%s].{%d}" % (re.escape(opcodes), following) for following, opcodes in FIXED.items()]
        # An index of the memo: the Unpickler reserves 16 bytes for each below it, so at most 256 MiB.
        + [re.escape(pickle.LONG_BINPUT) + rb".{3}\x00"]
        + [re.escape(pickle.LONG1) + rb"\x08.{8}"]  # a time
    ),
    re.DOTALL,
)
DAMAGED = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, TypeError, ValueError),
    pickle.UnpicklingError,
)


class NotData(Exception):
    """Says at which byte a pickle is more or less than data."""

    def __init__(self, byte: int, why: str):
        super().__init__(f"not a pickle of data, at byte {byte}: {why}")


class DataUnpickler(pickle.Unpickler):
    """Refuses whatever stands outside of the pickle."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to an object outside of it")


def end_of_one(data: bytes, place: int) -> int:
    """Where the opcode ends that begins at a place of a pickle, and is not among those of RUN."""
    opcode = data[place : place + 1]
    if opcode in COUNTED:
        begin = place + 1 + COUNTED[opcode]
        end = begin + int.from_bytes(data[place + 1 : begin], "little")
        if end <= len(data) and opcode != pickle.LONG1:
            try:
                data[begin:end].decode("utf-8", "surrogatepass")
            except UnicodeDecodeError:
                raise NotData(end, "a text is not UTF-8")
        return end
    if opcode == pickle.LONG_BINPUT and place + 5 <= len(data):
        raise NotData(place + 5, "it gives an object a number above 2^24")
    if opcode and opcode not in b"".join([*FIXED.values(), pickle.LONG_BINPUT]):
        why = f"it has the opcode {opcode[0]:#04x}, and flight records have data alone"
        raise NotData(place + 1, why)
    return len(data) + 1


def require_data(data: bytes) -> None:
    """Raises NotData unless all opcodes of a pickle make data, up to its end, which is the file's."""
    place = 0
    while data[place : place + 1] != pickle.STOP:
        end_of_run = RUN.match(data, place).end()  # type: ignore[union-attr]
        place = end_of_run if end_of_run > place else end_of_one(data, place)
        if place > len(data):
            raise NotData(len(data), "it is cut off")
    if place + 1 < len(data):
        raise NotData(place + 1, "it goes on after its end")


def read_pickle(data: bytes) -> Any:
    """What a pickle of data has in it. Raises NotData."""
    require_data(data)
    try:
        return DataUnpickler(io.BufferedReader(io.BytesIO(data))).load()  # type: ignore[arg-type]
    except DAMAGED:
        file = io.BytesIO(data)  # once more without reading ahead, for the place
    try:
        return DataUnpickler(file).load()
    except DAMAGED:
        raise NotData(file.tell(), "its opcodes do not fit together")
