"""Reads the fields of a JSON object, and says where in the file a wrong one stands."""

import json
import math
import os
import re
from dataclasses import dataclass
from typing import Any, Dict, List, NoReturn, Optional, Set, Tuple

from ringside.library import RingsideError

DEEPEST = 16  # levels of nesting


def require(holds: Any, sentence: str) -> None:
    """Raises RingsideError with the sentence unless `holds`."""
    if not holds:
        raise RingsideError(sentence)


def shown(value: Any) -> str:
    """A JSON value for an error: quoted, in ASCII, at most 100 characters."""
    text = json.dumps(value, separators=(",", ":"))
    return text if len(text) <= 100 else text[:97] + "..."


def parse_json(text: str, what: str) -> Any:
    """Parses text strictly; `what` names it in errors."""

    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        seen: Dict[str, Any] = {}
        for key, value in pairs:
            require(key not in seen, f"{what} names {shown(key)} twice")
            seen[key] = value
        return seen

    def finite(digits: str) -> float:
        require(math.isfinite(float(digits)), f"{what} has a number that is too large for fp64")
        return float(digits)

    def whole(digits: str) -> int:
        return int(digits) if finite(digits) else 0

    def refuse(word: str) -> NoReturn:
        raise json.JSONDecodeError("no number", text, re.search(rf"{word}\b", text).start())

    levels = depth = 0
    for bracket in re.findall(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', text):
        levels += (bracket in "[{") - (bracket in "]}")
        depth = max(depth, levels)
    require(depth <= DEEPEST, f"{what} is nested more than {DEEPEST} levels deep")
    try:
        hooks = dict(parse_float=finite, parse_int=whole, parse_constant=refuse)
        return json.loads(text, object_pairs_hook=unique, **hooks)
    except json.JSONDecodeError as error:
        raise RingsideError(
            f"{what} is not JSON: the error is in line {error.lineno}, column {error.colno}"
        ) from None


def data_file(name: str) -> str:
    """The path of a file or folder of python/ringside/data."""
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), "data", name)


def read_json_file(path: str) -> Any:
    """The content of a JSON file. The error has the path, and the place of a syntax error."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise RingsideError(f"cannot read {path}: {error.strerror}") from None
    try:
        return parse_json(content.decode("utf-8"), path)
    except UnicodeDecodeError as error:
        raise RingsideError(
            f"{path} is not JSON: byte {error.start} (from 0) is not UTF-8"
        ) from None


@dataclass(frozen=True)
class Range:
    """A range of numbers, and how an error names it: "a number above 0"."""

    name: str
    least: float
    most: float = math.inf
    without_least: bool = False


POSITIVE = Range("above 0", 0, without_least=True)
NOT_NEGATIVE = Range("of at least 0", 0)
AT_LEAST_ONE = Range("of at least 1", 1)
SHARE = Range("above 0 and at most 1", 0, 1, without_least=True)
SHARE_OR_NONE = Range("from 0 to 1", 0, 1)


class JsonFields:
    """`place` is "machine.json: " for the whole file, "machine.json: levels[1]." within it. A field
    that is not there, or null, has the value `if_absent`, and is an error without one."""

    def __init__(self, content: Any, place: str):
        said = f"{place.rstrip('.: ')} is {shown(content)}, but an object {{...}} is expected"
        require(isinstance(content, dict), said)
        self.content, self.place = content, place
        self.read: Set[str] = set()

    def get(self, key: str, if_absent: Any = None) -> Any:
        self.read.add(key)
        value = self.content.get(key)
        value = if_absent if value is None else value
        require(value is not None, f"{self.place}{key} is missing")
        return value

    def has(self, key: str) -> bool:
        self.read.add(key)
        return self.content.get(key) is not None

    def _checked(self, key: str, if_absent: Any, holds: Any, expected: str) -> Any:
        value = self.get(key, if_absent)
        require(holds(value), f"{self.place}{key} is {shown(value)}, but {expected} is expected")
        return value

    def text(self, key: str, if_absent: Optional[str] = None) -> str:
        return self._checked(key, if_absent, lambda v: isinstance(v, str), "text in quotes")

    def count(self, key: str, if_absent: Optional[int] = None) -> int:
        def holds(value: Any) -> bool:
            return type(value) is int and 1 <= value <= 10**9

        return self._checked(key, if_absent, holds, "an integer from 1 to 1000000000")

    def number(self, key: str, within: Range, if_absent: Optional[float] = None) -> float:
        def holds(value: Any) -> bool:
            in_range = type(value) in (int, float) and within.least <= value <= within.most
            return in_range and not (within.without_least and value == within.least)

        return float(self._checked(key, if_absent, holds, f"a number {within.name}"))

    def flag(self, key: str, if_absent: bool) -> bool:
        return self._checked(key, if_absent, lambda v: isinstance(v, bool), "true or false")

    def object(self, key: str) -> "JsonFields":
        return JsonFields(self.get(key), f"{self.place}{key}.")

    def list(self, key: str) -> List["JsonFields"]:
        """A list of objects, not empty."""
        value = self._checked(key, None, lambda v: isinstance(v, list) and v, "a list of objects")
        return [JsonFields(each, f"{self.place}{key}[{i}].") for i, each in enumerate(value)]

    def done(self) -> None:
        """Refuses a key that was not read."""
        known = ", ".join(sorted(self.read))
        for key in self.content:
            sentence = f"{self.place}{key} is an unknown key; known are {known}"
            require(key in self.read, sentence)
