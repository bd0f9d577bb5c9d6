"""libringside.so by ctypes: the functions of ringside.h, and errors as exceptions.

Knows nothing of torch: buffers are addresses. Each handle is freed once, by its owner; the library
refuses one that was freed (ringside.h).
"""

import ctypes
import os
from ctypes import byref, c_char_p, c_double, c_int, c_size_t, c_void_p
from pathlib import Path

ABI_VERSION = 2
OK, ERROR, RANK_FAILED, TIMED_OUT, INTERRUPTED = range(5)
FP32, FP64, INT32, INT64, FP16, BF16, UINT8, INT8, INT16, BOOL = range(10)
SUM, PRODUCT, MIN, MAX, AVG, BIT_AND, BIT_OR, BIT_XOR = range(8)


class RingsideError(RuntimeError):
    """What ringside_last_error() says."""


class RankFailure(RingsideError):
    """A rank is gone, has given up, or does not answer."""


class Address(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


# The arguments of each collective between the group and the work: p pointer, n count, i int.
CALLS = {
    "all_reduce": "pnii",
    "broadcast": "pnii",
    "reduce": "pniii",
    "all_gather": "ppnpi",
    "reduce_scatter": "ppnpii",
    "gather": "ppnii",
    "scatter": "ppnii",
    "all_to_all": "ppnppi",
    "barrier": "",
    "send": "pniii",
    "recv": "pniii",
}
# What the other functions return, and their arguments: also s text, d seconds, - nothing.
OTHERS = {
    "last_error": "s:",
    "listen": "i:sdpp",
    "connect": "i:piipssd",
    "abort": "-:ps",
    "close": "-:p",
    "transport": "s:p",
    "bytes_sent": "n:p",
    "algorithm": "s:psni",
    "work_done": "i:p",
    "work_free": "-:p",
    "work_source": "i:p",
    "work_wait": "i:pd",
    "check_while_waiting": "-:p",
}
KINDS = {"p": c_void_p, "n": c_size_t, "i": c_int, "s": c_char_p, "d": c_double, "-": None}
Check = ctypes.CFUNCTYPE(c_int)


# Of the tree whose source this file is; elsewhere there is no such folder.
BUILD_OF_TREE = Path(__file__).resolve().parents[2] / "build/release"


def find_library():
    """RINGSIDE_LIBRARY, the one beside this file or in the build of its tree, or an installed one."""
    name = "libringside.so"
    places = Path(__file__).with_name(name), BUILD_OF_TREE / "python/ringside" / name
    found = [str(place) for place in places if place.exists()]
    return os.environ.get("RINGSIDE_LIBRARY") or next(iter(found), name + ".1")


def load_library():
    path = find_library()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise RingsideError(
            f"cannot load {path}: {error}. Build it (cmake --build --preset release --target "
            "ringside_c), then install build/release/python with pip, or name the library in "
            "RINGSIDE_LIBRARY"
        ) from None
    version = library.ringside_abi_version()
    if version != ABI_VERSION:
        raise RingsideError(
            f"{path} has version {version} of the C interface, and this package "
            f"needs version {ABI_VERSION}: install both from one build"
        )
    signatures = {**OTHERS, **{name: f"i:p{arguments}p" for name, arguments in CALLS.items()}}
    for name, signature in signatures.items():
        result, arguments = signature.split(":")
        function = getattr(library, "ringside_" + name)
        function.restype = KINDS[result]
        function.argtypes = [KINDS[kind] for kind in arguments]
    library.ringside_check_while_waiting(run_signal_handlers)
    return library


interruption = None  # what a signal's handler has raised while a call was blocking


def _signals():
    # An exception of a handler arrives where Python runs next in the main thread. In a function
    # that C calls that is its first line, outside of any try; a generator goes on inside of one.
    global interruption
    while True:
        try:
            while True:
                yield 0 if interruption is None else 1
        except GeneratorExit:
            raise
        except BaseException as raised:
            interruption = raised


_running = _signals()
next(_running)
run_signal_handlers = Check(_running.__next__)

_library = None


def library():
    global _library
    if _library is None:
        _library = load_library()
    return _library


def check(status):
    """Raises what a status other than OK stands for."""
    global interruption
    if status == OK:
        return
    if status == INTERRUPTED and interruption is not None:
        raised, interruption = interruption, None
        raise raised
    text = library().ringside_last_error().decode(errors="replace")
    raise (RankFailure if status == RANK_FAILED else RingsideError)(text)


def text_of(result):
    """What a function returns that gives a text, or NULL after a failure."""
    if result is None:
        check(ERROR)
    return result.decode()


def list_of(lengths):
    """Lengths of blocks as the library reads them."""
    lengths = list(lengths)
    return (c_size_t * len(lengths))(*lengths)


def counts(lengths):
    """The same; None if all are equal."""
    return None if len(set(lengths)) <= 1 else list_of(lengths)


class Group:
    """A connected group of ranks. `exchange(bytes)` is given this rank's contact and returns
    those of all ranks, in the order of ranks; rank 0's ends with the key of the group."""

    def __init__(self, rank, size, host, exchange, key, name="", timeout=1800.0):
        self.handle = None
        self.rank, self.size, self.process = rank, size, os.getpid()
        self.library = library()
        handle, mine = c_void_p(), Address()
        check(self.library.ringside_listen(host.encode(), timeout, byref(handle), byref(mine)))
        self.handle = handle
        contacts = exchange(bytes(mine.bytes) + (key.encode() if rank == 0 else b""))
        addresses = (Address * size)()
        for address, contact in zip(addresses, contacts):
            ctypes.memmove(byref(address), contact, 64)
        check(
            self.library.ringside_connect(
                handle, rank, size, addresses, contacts[0][64:], name.encode(), timeout
            )
        )

    def function(self, name):
        return getattr(self.library, "ringside_" + name)

    @property
    def transport(self):
        return text_of(self.library.ringside_transport(self.handle))

    @property
    def bytes_sent(self):
        return self.library.ringside_bytes_sent(self.handle)

    def algorithm(self, collective, count, type):
        return text_of(
            self.library.ringside_algorithm(self.handle, collective.encode(), count, type)
        )

    def abort(self, cause):
        if self.handle is not None:
            self.library.ringside_abort(self.handle, cause.encode())

    def close(self):
        handle, self.handle = self.handle, None
        if handle is not None and self.process == os.getpid():  # not in a child after fork()
            self.library.ringside_close(handle)

    __del__ = close
