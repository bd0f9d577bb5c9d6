"""Quantity: a number that knows how it was computed. A formula is written once, as plain Python:

    s, b, h = named("s", 2048), named("b", 4), named("h", 6144)
    a, t = named("a", 64), named("t", 8)
    bytes = s * b * h * (10 + 24 / t + 5 * a * s / (h * t))

    float(bytes)      1325400064.0
    symbols(bytes)    s b h (10 + 24 / t + 5 a s / (h t))
    numbers(bytes)    2,048 x 4 x 6,144 x (10 + 24 / 8 + 5 x 64 x 2,048 / (6,144 x 8))

So `ringside account --explain` prints the formula that was computed, and no other. A function that
is a line of a derivation says above itself what it computes:

    @formula("P_router", "the matrix that chooses experts", source="Jiang et al. 2024")
    def router(model: Model) -> float:
        return named("d", model.d_model) * named("E", model.experts.routed)

Within values_only() all of them return plain numbers, and the same formulas are fast.
"""

import contextlib
import enum
import functools
import math
import operator
from typing import Any, Callable, Iterator, Tuple

_keeps_formulas = True


class Quantity(float):
    """A float with its expression: a symbol, or an operation on others."""

    __slots__ = ("symbol", "operation", "operands")

    def __new__(
        cls, value: float, symbol: str = "", operation: str = "", operands: Tuple[float, ...] = ()
    ) -> "Quantity":
        self = super().__new__(cls, value)
        self.symbol, self.operation, self.operands = symbol, operation, operands
        return self

    def __reduce__(self) -> Any:
        return float, (float(self),)


def _operators(sign: str, compute: Callable[[float, float], float]) -> Tuple[Callable, Callable]:
    def operation(a: float, b: float) -> Quantity:
        return Quantity(compute(float(a), float(b)), operation=sign, operands=(a, b))

    return operation, lambda b, a: operation(a, b)


def divided(a: float, b: float) -> float:
    """a / b; infinite if b is 0, as in IEEE 754."""
    if b != 0:
        return a / b
    return math.nan if a == 0 else math.copysign(math.inf, a)


for _name, _sign, _compute in (
    ("add", "+", operator.add),
    ("sub", "-", operator.sub),
    ("mul", "*", operator.mul),
    ("truediv", "/", divided),
):
    _there, _back = _operators(_sign, _compute)
    setattr(Quantity, f"__{_name}__", _there)
    setattr(Quantity, f"__r{_name}__", _back)


def _function(name: str, compute: Callable[..., float]) -> Callable[..., float]:
    def apply(*of: float) -> float:
        value = compute(*map(float, of))
        return Quantity(value, operation=name, operands=of) if _keeps_formulas else value

    return apply


largest = _function("max", max)
smallest = _function("min", min)
ceil = _function("ceil", lambda a: float(math.ceil(a)) if math.isfinite(a) else a)
sqrt = _function("sqrt", math.sqrt)


@contextlib.contextmanager
def values_only() -> Iterator[None]:
    """Formulas are computed without being kept: for who compares thousands of plans."""
    global _keeps_formulas
    before, _keeps_formulas = _keeps_formulas, False
    try:
        yield
    finally:
        _keeps_formulas = before


def named(symbol: str, value: float) -> float:
    """An input of a formula."""
    return Quantity(value, symbol) if _keeps_formulas else float(value)


def constant(value: float) -> float:
    """A number that stands in the text of a formula as it is."""
    return named("", value)


# The text of a formula.

_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2}  # how tightly the text holds together; others: 3


def _text(of: float, with_numbers: bool) -> str:
    if not isinstance(of, Quantity) or not of.operation:
        symbol = getattr(of, "symbol", "")
        return number_text(float(of)) if with_numbers or not symbol else symbol
    sign = of.operation
    if sign not in _STRENGTH:
        return f"{sign}({', '.join(_text(each, with_numbers) for each in of.operands)})"
    a, b = of.operands
    between = (" x " if with_numbers else " ") if sign == "*" else f" {sign} "
    # What follows - or / is computed first: a - (b + c), a / (b c). A quotient before a product is
    # enclosed, because a / b c reads as a / (b c).
    left = _STRENGTH[sign] + (sign == "*" and getattr(a, "operation", "") == "/")
    right = _STRENGTH[sign] + (sign in "-/")
    return _enclosed(a, left, with_numbers) + between + _enclosed(b, right, with_numbers)


def _enclosed(of: float, at_least: int, with_numbers: bool) -> str:
    strength = _STRENGTH.get(getattr(of, "operation", ""), 3)
    inner = _text(of, with_numbers)
    return f"({inner})" if strength < at_least else inner


def symbols(of: float) -> str:
    """The formula with the names of its inputs."""
    return _text(of, False)


def numbers(of: float) -> str:
    """The formula with the values of its inputs."""
    return _text(of, True)


# Terms: lines of a derivation.


class Unit(enum.Enum):
    NUMBER, BYTES, SECONDS, FLOPS, DEVICES, TOKENS, SHARE = range(7)


class Term(Quantity):
    """A formula with its result, its unit and its source. In another formula it is an input."""

    __slots__ = ("what", "formula", "unit", "source")
    what: str  # "activations of a block, for one micro-batch"
    formula: float
    unit: Unit
    source: str  # "Korthikanti et al. 2022, equation 2"


def term(
    symbol: str, what: str, formula: float, unit: Unit = Unit.NUMBER, source: str = ""
) -> Term:
    """A line of the derivation; within values_only() its plain number."""
    if not _keeps_formulas:
        return float(formula)  # type: ignore[return-value]
    self = Term(float(formula), symbol)
    self.what, self.formula, self.unit, self.source = what, formula, unit, source
    return self


def formula(
    symbol: str, what: str, unit: Unit = Unit.NUMBER, source: str = ""
) -> Callable[[Callable[..., float]], Callable[..., Term]]:
    """Makes a term() of what the function below computes."""

    def decorator(compute: Callable[..., float]) -> Callable[..., Term]:
        @functools.wraps(compute)
        def line(*arguments: Any) -> Term:
            value = compute(*arguments)
            return term(symbol, what, value, unit, source) if _keeps_formulas else float(value)

        return line

    return decorator


def formula_of(of: float) -> float:
    """The formula of a term, to stand in another one with all its inputs."""
    return getattr(of, "formula", of)


def source_of(of: float) -> str:
    """The source of a term; of a plain number there is none."""
    return getattr(of, "source", "")


# Numbers as text.


def rounded(value: float) -> float:
    """To the nearest integer; halves go away from zero."""
    if not math.isfinite(value) or abs(value) >= 2**52:
        return value
    return math.copysign(math.floor(abs(value) + 0.5), value)


def with_commas(integer: float) -> str:
    """ "219,848,638,464"."""
    return f"{'-' if integer < 0 else ''}{abs(integer):,.0f}"


def four_digits(value: float) -> str:
    """ "3,518", "59.25", "0.1234": more digits only before the point."""
    return with_commas(rounded(value)) if abs(value) >= 999.95 else f"{value:.4g}"


def number_text(number: float) -> str:
    """ "2,048", "4.6e14", "0.75": a number within a formula."""
    brief = f"{number:.4g}".replace("e+", "e").replace("e0", "e").replace("e-0", "e-")
    is_integer = math.isfinite(number) and number == math.floor(number) and abs(number) < 1e15
    is_round = abs(number) >= 1e9 and float(brief) == number
    return with_commas(number) if is_integer and not is_round else brief


def text_with_unit(value: float, unit: Unit) -> str:
    """ "3,517,578,215,424 B = 3,518 GB", "1.102 s", "31.5 %"."""
    if unit is Unit.BYTES:
        text = with_commas(rounded(value)) + " B"
        return text if abs(value) < 1e6 else f"{text} = {four_digits(value / 1e9)} GB"
    if unit is Unit.SECONDS:
        if value != 0 and abs(value) < 1e-3:
            return four_digits(value * 1e6) + " us"
        small = value != 0 and abs(value) < 1
        return four_digits(value * 1e3) + " ms" if small else four_digits(value) + " s"
    if unit is Unit.FLOPS:
        return number_text(value) + " FLOPs"
    if unit is Unit.DEVICES:
        return with_commas(value) + (" device" if value == 1 else " devices")
    if unit is Unit.TOKENS:
        return four_digits(value) + " tokens"
    if unit is Unit.SHARE:
        return four_digits(value * 100) + " %"
    is_integer = math.isfinite(value) and value == math.floor(value)
    return with_commas(value) if is_integer else four_digits(value)
