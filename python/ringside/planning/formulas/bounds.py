"""How many devices the course's model needs, which batch is large enough, and what makes it smaller.

Devices: under FSDP. Symbols: T tokens, d width, f inner width, e bytes of a number, t ranks of
tensor parallel, N devices.

The least batch: one feed-forward block of two matrices, forward only, on N = X Y devices: FSDP over
X, tensor parallel over Y. Symbols: B tokens of the batch, D width, F inner width, C FLOP/s of a
device, W bytes per second of a link, M_X and M_Y axes of a torus that carry FSDP and tensor
parallel.

    computing             4 B D F / (N C)
    FSDP's all-gathers    4 D F / (Y W M_X)     2 D F numbers of two bytes, divided by Y
    tensor parallel       4 B D / (X W M_Y)     all-gather and reduce-scatter of B D / X numbers

Sources: Stanford CS336, assignment 2, communication accounting; Austin et al. 2025, How to scale
your model, chapter 5.
"""

import math
from dataclasses import dataclass, replace
from typing import List

from ringside.planning.quantity import Term, Unit, ceil, constant, formula, named, sqrt, term

QUESTION_A, QUESTION_B, QUESTION_C, QUESTION_D = (
    f"Stanford CS336, assignment 2, question ({letter})" for letter in "abcd"
)
SCALING = "Austin et al. 2025, How to scale your model, chapter 5"


@formula("N", "devices that hold the state, and nothing else", Unit.DEVICES, QUESTION_A)
def devices_for_state(state: float, memory: float) -> float:
    """Devices that hold the whole state, if it is divided evenly and nothing else is there."""
    return ceil(state / memory)


@formula("M", "memory of a device", Unit.BYTES, QUESTION_B)
def fsdp_bytes(state: float, activations: float, devices: float) -> float:
    """Bytes that each of N devices needs under FSDP: the state over N; half of the activations of
    its tokens over N, and half of them whole."""
    return (state + activations / 2) / devices + activations / 2


@formula("N", "devices under FSDP", Unit.DEVICES, QUESTION_B)
def fsdp_devices(state: float, activations: float, memory: float) -> float:
    """The least N for which that fits into the memory of a device."""
    return ceil((state + activations / 2) / (memory - activations / 2))


@dataclass
class Split:
    """What the least batch depends on."""

    width: float  # D
    inner: float  # F
    fsdp: float  # X
    tensor: float  # Y
    peak: float  # C, FLOP/s
    bandwidth: float  # W, bytes per second
    torus_fsdp: float = 1.0  # M_X
    torus_tensor: float = 1.0  # M_Y

    def __post_init__(self) -> None:
        self.d, self.f = named("D", self.width), named("F", self.inner)
        self.x, self.y = named("X", self.fsdp), named("Y", self.tensor)
        self.c, self.w = named("C", self.peak), named("W", self.bandwidth)
        self.m_x, self.m_y = named("M_X", self.torus_fsdp), named("M_Y", self.torus_tensor)
        self.n = named("N", self.fsdp * self.tensor)


@formula("Y_max", "the Y at which tensor parallel takes as long as computing", source=SCALING)
def largest_tensor(s: Split) -> float:
    """The largest Y whose communication computing hides: t_compute > t_tensor does not depend on
    B."""
    return s.f * s.m_y * s.w / s.c


def _never(s: Split) -> bool:
    """Whether tensor parallel alone takes longer than computing, whatever the batch."""
    return s.tensor >= largest_tensor(s)


@formula(
    "B/N", "tokens of a device, if the two axes' communication overlaps", Unit.TOKENS, QUESTION_C
)
def tokens_if_overlapped(s: Split) -> float:
    """The least batch, in tokens of one device, that is bound by computing at this X and Y if
    FSDP's communication, tensor parallel's and computing all overlap: t_compute > t_fsdp."""
    return named("infinite", math.inf) if _never(s) else s.c / (s.w * s.y * s.m_x)


@formula(
    "B/N", "tokens of a device, if the two axes' communication adds up", Unit.TOKENS, QUESTION_C
)
def tokens_if_added(s: Split) -> float:
    """If the two axes share a link and their times add up: t_compute > t_fsdp + t_tensor."""
    if _never(s):
        return named("infinite", math.inf)
    return s.c / (s.w * s.y * s.m_x) / (1 - s.c * s.y / (s.w * s.f * s.m_y))


@formula("B/N", "tokens of a device, at the best X and Y for this N", Unit.TOKENS, SCALING)
def tokens_at_best_split(s: Split) -> float:
    """At the best X and Y for this N, where both communications take equally long; no bound for a
    given X and Y: X = sqrt(B N M_X / (F M_Y)), put into t_compute > t_fsdp."""
    return s.c * s.c / (s.w * s.w * s.m_x * s.m_y * s.f)


@formula("X_best", "the best X for this N and that batch", source=SCALING)
def best_fsdp(s: Split) -> float:
    """That X, in general no integer."""
    return sqrt(tokens_at_best_split(s) * s.n * s.n * s.m_x / (s.f * s.m_y))


def least_batch(s: Split, batch: float) -> List[Term]:
    """The three times for a batch of `batch` tokens over all devices, and the bounds."""
    b = named("B", batch)
    times = (
        ("t_compute", "computing", 4 * b * s.d * s.f / (s.n * s.c)),
        ("t_fsdp", "FSDP's all-gathers", 4 * s.d * s.f / (s.y * s.w * s.m_x)),
        (
            "t_tensor",
            "tensor parallel's all-gather and reduce-scatter",
            4 * b * s.d / (s.x * s.w * s.m_y),
        ),
    )
    bounds = (
        tokens_if_overlapped,
        tokens_if_added,
        tokens_at_best_split,
        best_fsdp,
        largest_tensor,
    )
    return [
        *(term(*each, Unit.SECONDS, QUESTION_C) for each in times),
        *(bound(s) for bound in bounds),
    ]


def smaller_batch(s: Split) -> List[Term]:
    """The least batch of all N devices, if all overlaps, and what makes it smaller. Backward takes
    twice the computing and twice the communication of forward, so the bounds are those of a whole
    step.

    Recomputation runs forward again, a third more computing, with the parameters that backward has
    gathered anyway. More work then hides the same communication, and the work is no use."""
    batch = s.n * tokens_if_overlapped(s)
    wider = replace(s, fsdp=s.fsdp / 2, tensor=2 * s.tensor)
    rows = (
        ("the batch of all devices, if the two axes' communication overlaps", batch),
        (
            "no help: gradient accumulation. Each of K = 2 micro-batches gathers the shards again, "
            "and must be as large as that",
            named("K", 2) * batch,
        ),
        (
            "helps: twice the tensor parallel, half the FSDP, as long as Y stays below Y_max",
            s.n * tokens_if_overlapped(wider),
        ),
        (
            "helps: another mesh of these devices, at the best X and Y",
            s.n * tokens_at_best_split(s),
        ),
        ("helps: overlap. Where the two axes' times add up, it is", s.n * tokens_if_added(s)),
    )
    what = (
        "no help: recomputation. It hides communication behind 3/4 of that batch, but computing "
        "takes 4/3 of the time: tokens per second, compared with that batch without it"
    )
    useful = term("rate", what, constant(1) / (constant(4) / 3), Unit.SHARE, QUESTION_D)
    terms = [term("B", *row, Unit.TOKENS, QUESTION_D) for row in rows]
    return [*terms[:2], useful, *terms[2:]]
