"""The bubble of a pipeline: the time that a stage waits, in closed form. All stages take the same
time, and messages between them none.

Symbols: p stages, m micro-batches, v chunks of a stage; F, I, W the times of forward, of the
gradient of the input, and of the gradient of the weights, for one micro-batch on one stage.
"""

from typing import Callable, Dict, Tuple

from ringside.planning.formulas.symbols import Symbols
from ringside.planning.plan import Plan
from ringside.planning.quantity import Term, Unit, named, term

TIMED = "timed action by action, F = I = W"
# How many times a stage's work for one micro-batch it waits: the idle slots before its first
# forward and after its last backward; and the source.
IDLE_SLOTS: Dict[str, Tuple[Callable[[float, float], float], str]] = {
    # p - 1 slots of F + B.
    "gpipe": (lambda p, v: p - 1, "Huang et al. 2019 (GPipe), section 2.3"),
    "1f1b": (lambda p, v: p - 1, "Narayanan et al. 2021, section 2.2.1"),
    # The slots are 1/v as long.
    "interleaved": (lambda p, v: (p - 1) / v, "Narayanan et al. 2021, section 2.2.2"),
    # The same; with m < p every further stage waits p - m slots: _idle_slots().
    "looped_bfs": (
        lambda p, v: (p - 1) / v,
        "Lamy-Poirier 2023 (Breadth-first pipeline), section 3",
    ),
    # W fills two thirds of them: p - 1 slots of F + I - W, a third of F + I + W.
    "zb_h1": (lambda p, v: (p - 1) / 3, "Qi et al. 2023 (Zero bubble), table 1"),
    # p - 1 slots of F, until the first micro-batch has reached the last rank; half a stage's
    # forward is a sixth of its work.
    "zb_v": (
        lambda p, v: (p - 1) / 6,
        "Qi et al. 2024 (Controllable memory), table 1, and the fill",
    ),
    "dualpipe_v": (lambda p, v: (p - 1) / 6, "timed, F = I = W: the fill, as with zb_v"),
    # As zb_h1, with slots that are 1/v as long.
    "interleaved_zb": (
        lambda p, v: (p - 1) / (3 * v),
        "Qi et al. 2023 (Zero bubble), with stages 1/v as long",
    ),
}


def _idle_slots(plan: Plan) -> Tuple[float, str]:
    """The slots of IDLE_SLOTS, or of a file's schedule, and their source."""
    x, v = Symbols(None, plan), named("v", plan.chunks)
    if plan.schedule not in IDLE_SLOTS:
        from ringside.planning.schedule_file import idle_share  # few plans have a file

        share = idle_share(plan.schedule, plan.mesh.size("pp"), plan.micro_batches)
        return named("idle", share * plan.micro_batches), TIMED
    slots, source = IDLE_SLOTS[plan.schedule]
    if plan.schedule == "looped_bfs" and x.m < x.p:
        return (x.p - 1 + (v - 1) * (x.p - x.m)) / v, source
    return slots(x.p, v), source


def bubble_share(plan: Plan) -> Term:
    (idle, source), m = _idle_slots(plan), Symbols(None, plan).m
    what = "share of the step that a stage waits"
    return term("bubble", what, idle / (m + idle), Unit.SHARE, source)


def bubble_seconds(plan: Plan, stage: float) -> Term:
    """`stage` seconds is forward and backward of one micro-batch on one stage, with F = I = W for
    the zero-bubble schedules."""
    idle, source = _idle_slots(plan)
    return term("t_bubble", "time that a stage waits", idle * stage, Unit.SECONDS, source)
