"""The bubble of a pipeline: the time that a stage waits, in closed form. All stages take the same
time, and messages between them none.

Symbols: p stages, m micro-batches, v chunks of a stage; F, I, W the times of forward, of the
gradient of the input, and of the gradient of the weights, for one micro-batch on one stage.
"""

from ringside.planning.plan import Plan
from ringside.planning.quantity import Term, Unit, named, term

SOURCES = {
    "gpipe": "Huang et al. 2019 (GPipe), section 2.3",
    "1f1b": "Narayanan et al. 2021, section 2.2.1",
    "interleaved": "Narayanan et al. 2021, section 2.2.2",
    "looped_bfs": "Lamy-Poirier 2023 (Breadth-first pipeline), section 3",
    "zb_h1": "Qi et al. 2023 (Zero bubble), table 1",
    "zb_v": "Qi et al. 2024 (Controllable memory), table 1, and the fill",
    "interleaved_zb": "Qi et al. 2023 (Zero bubble), with stages 1/v as long",
    "dualpipe_v": "timed, F = I = W: the fill, as with zb_v",
}


def _idle_slots(plan: Plan) -> float:
    """How many times a stage's work for one micro-batch it waits: the idle slots before its first
    forward and after its last backward.

        gpipe, 1f1b    p - 1 slots of F + B
        interleaved    the slots are 1/v as long
        looped_bfs     the same; with m < p every further stage waits p - m slots
        zb_h1          W fills two thirds of them: p - 1 slots of F + I - W, a third of F + I + W
        zb_v           p - 1 slots of F, until the first micro-batch has reached the last rank; half
                       a stage's forward is a sixth of its work
        interleaved_zb as zb_h1, with slots that are 1/v as long
        dualpipe_v     as zb_v
    """
    p, v = named("p", plan.mesh.size("pp")), named("v", plan.chunks)
    m = named("m", plan.micro_batches)
    if plan.schedule == "looped_bfs" and m < p:
        return (p - 1 + (v - 1) * (p - m)) / v
    if plan.schedule in ("interleaved", "looped_bfs"):
        return (p - 1) / v
    if plan.schedule == "zb_h1":
        return (p - 1) / 3
    if plan.schedule in ("zb_v", "dualpipe_v"):
        return (p - 1) / 6
    if plan.schedule == "interleaved_zb":
        return (p - 1) / (3 * v)
    if plan.schedule.startswith("csv:"):
        from ringside.planning.schedule_file import idle_share  # few plans have a file

        share = idle_share(plan.schedule, plan.mesh.size("pp"), plan.micro_batches)
        return named("idle", share * plan.micro_batches)
    return p - 1


def _source_of(plan: Plan) -> str:
    return SOURCES.get(plan.schedule, "timed action by action, F = I = W")


def bubble_share(plan: Plan) -> Term:
    idle, m = _idle_slots(plan), named("m", plan.micro_batches)
    return term(
        "bubble",
        "share of the step that a stage waits",
        idle / (m + idle),
        Unit.SHARE,
        _source_of(plan),
    )


def bubble_seconds(plan: Plan, stage: float) -> Term:
    """`stage` seconds is forward and backward of one micro-batch on one stage, with F = I = W for
    the zero-bubble schedules."""
    return term(
        "t_bubble",
        "time that a stage waits",
        _idle_slots(plan) * stage,
        Unit.SECONDS,
        _source_of(plan),
    )
