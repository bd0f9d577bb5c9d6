"""Numbers as people read them, and as they type them."""

import math
import re
from typing import Callable

from ringside.library import RingsideError
from ringside.planning.quantity import Unit, rounded, text_with_unit

UNITS = {
    "TiB": 1 << 40,
    "GiB": 1 << 30,
    "MiB": 1 << 20,
    "KiB": 1 << 10,
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "KB": 1000,
    "B": 1,
}
NUMBER = r"[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?"


def parse_bytes(text: str) -> int:
    """ "64KB" is 64000 bytes, "64KiB" 65536. The units are B, KB, MB, GB, TB and KiB, MiB, ..."""
    match = re.fullmatch(f"({NUMBER}) *([A-Za-z]*)", text)
    scale = UNITS.get(match[2] or "B", 0) if match else 0
    size = float(match[1]) * scale if match else math.nan
    if not scale or not size < 1e18 or size != math.floor(size):
        raise RingsideError(
            f"'{text}' is not a number of bytes: write 4B, 64KB (64000 bytes), "
            "64KiB (65536 bytes), 10MB or 1GB"
        )
    return int(size)


def bytes_to_text(count: int) -> str:
    """ "64 KB", "65536 B"."""
    for unit, size in UNITS.items():
        if len(unit) < 3 and count >= size and count % size == 0:
            return f"{count // size} {unit}"
    return f"{count} B"


def parse_count(text: str) -> float:
    """ "15T", "300B" or "2.5e9": a number with K, M, B or T for 10^3 to 10^12."""
    match = re.fullmatch(f"({NUMBER})([KMBT]?)", text)
    scale = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[match[2]] if match else 0.0
    count = float(match[1]) * scale if match else 0.0
    if not 1 <= count < math.inf:
        raise RingsideError(f"{text} is no number of tokens: write it as 15T, 300B or 1e9")
    return count


def count_text(value: float) -> str:
    """ "3,518": without digits after the point."""
    return text_with_unit(rounded(value), Unit.NUMBER)


def seconds_text(seconds: float) -> str:
    """ "1.2 ms"."""
    return text_with_unit(seconds, Unit.SECONDS)


def table_number(value: float) -> str:
    """ "59.25", "3,518", "0.0123": a number of a table; 0 is "-"."""
    if value == 0:
        return "-"
    if not math.isfinite(value):
        return "infinite"
    size = abs(value)
    if size >= 999.5:
        return count_text(value)
    return f"{value:.{1 if size >= 100 else 2 if size >= 10 else 3 if size >= 0.1 else 5}f}"


def scaled(scale: float) -> Callable[[float], str]:
    """Shows a value times `scale`."""
    return lambda value: table_number(value * scale)


def fixed(digits: int, scale: float = 1.0) -> Callable[[float], str]:
    """Shows so many digits after the point, after multiplication by `scale`."""
    return lambda value: f"{value * scale:.{digits}f}"
