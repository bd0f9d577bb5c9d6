"""How long a step of a plan takes on a machine that is not here, and what it waits for.

    s = simulate(model, plan, machine)
    s.step, s.bubble, s.exposed, s.loads

The account answers the same with closed formulas. They agree where both apply: all stages take the
same time, messages between them take none, and the data ranks' communication is hidden. Here stages
may differ, a message may cross a slower network than another, ranks may be slow, and what hides
behind what follows from the schedule.
"""

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from ringside.planning import schedule_file
from ringside.planning.formulas.work import model_flops, model_flops_utilization
from ringside.planning.json_fields import require
from ringside.planning.longest_path import Factors, Replica, Timeline, Walk
from ringside.planning.machine import Machine
from ringside.planning.model import Model, on_mesh
from ringside.planning.pipeline import in_order, lower, make_schedule
from ringside.planning.plan import Plan, stages_per_rank, validate
from ringside.planning.quantity import values_only
from ringside.planning.replicas import Replicas, factors_of
from ringside.planning.schedules import GENERATORS, Schedule
from ringside.planning.stage_load import UPDATE, MeasuredStage, PlanLoad, load_of, take_measured
from ringside.planning.stragglers import Stragglers


@dataclass
class LinkLoad:
    """What the links of one level carry for one axis, in one step."""

    level: str
    axis: str
    sent_bytes: float = 0.0  # by the rank that sends most
    seconds: float = 0.0  # how long these bytes keep its link busy


@dataclass
class Simulation:
    """Seconds, but for `bubble`, the share of the pipeline's time in which a rank is idle, and
    `utilization`, that of the devices' peak by the model's FLOPs. `undisturbed` is the step without
    stragglers, None if there are none. `exposed` is how much shorter a step would be if the
    communication along an axis took no time."""

    model: Model
    plan: Plan
    machine: Machine
    load: PlanLoad
    lowered: Schedule
    replicas: List[Replica]
    timeline: Timeline
    step: float
    bubble: float
    optimizer: float  # the update, and what ZeRO gathers after it
    undisturbed: Optional[float]
    exposed: List[Tuple[str, float]]
    loads: List[LinkLoad]
    utilization: float

    @property
    def tokens(self) -> int:
        """Of a step, over all ranks."""
        return self.plan.batch * self.plan.sequence

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.step

    @property
    def replicas_in_all(self) -> int:
        return self.plan.mesh.data_ranks()


def simulate(
    whole: Model,
    plan: Plan,
    machine: Machine,
    stragglers: Optional[Stragglers] = None,
    fold: bool = True,
    measured: Sequence[MeasuredStage] = (),
) -> Simulation:
    """With `fold`, replicas that nothing distinguishes are computed once. `measured` is what a
    trace has shown of each stage, instead of the formulas' times. Raises RingsideError if the plan
    is invalid, a straggler is no rank of the mesh, or the machine has fewer devices."""
    stragglers = stragglers or Stragglers()
    model, mesh = on_mesh(whole, plan.mesh.size("ep")), plan.mesh
    validate(plan, model)
    require(
        model.has_blocks,
        f"only the state of {model.name} is known, so its step cannot be simulated",
    )
    require_order(plan)
    machine.level_for(mesh.ranks())
    for rank in sorted(stragglers.slow):
        require(
            0 <= rank < mesh.ranks(),
            f"rank {rank} cannot be slow: the mesh {mesh.text()} has "
            f"the ranks 0 to {mesh.ranks() - 1}",
        )
    lowered, load = schedule_of(plan), load_of(model, plan, machine)
    if measured:
        take_measured(measured, load)
    of_plan = Replicas(plan, load, lowered.rank_of, machine)
    replicas, nodes = of_plan.make(stragglers, fold), in_order(lowered)
    factors = factors_of(replicas, stragglers)

    def run(factors: Factors, silent: Optional[str] = None) -> Tuple[float, Timeline, float]:
        """The step, its longest path, and the update."""
        path = Walk(lowered, nodes, of_plan.silenced(replicas, silent), factors).run()
        optimizer = update_seconds(of_plan, lowered, factors, silent)
        return path.reduced + optimizer, path, optimizer

    step, timeline, optimizer = run(factors)
    exposed = [(axis, step - run(factors, axis)[0]) for axis in mesh.axes() if mesh.size(axis) > 1]
    undisturbed = run(factors_of(replicas, Stragglers()))[0] if stragglers.any() else None
    with values_only():
        utilization = model_flops_utilization(model_flops(model, plan), step, mesh.ranks(), machine)
    return Simulation(
        model,
        plan,
        machine,
        load,
        lowered,
        replicas,
        timeline,
        step,
        timeline.bubble(replicas),
        optimizer,
        undisturbed,
        exposed,
        loads_of(of_plan, lowered),
        utilization,
    )


def schedule_of(plan: Plan) -> Schedule:
    ranks = plan.mesh.size("pp")
    if plan.schedule not in GENERATORS:
        return schedule_file.read_lowered(plan.schedule, ranks, plan.micro_batches)
    stages = stages_per_rank(plan)
    if ranks == 1 and stages > 1:  # one rank has one stage
        return lower(make_schedule("1f1b", 1, 1, plan.micro_batches))
    return lower(make_schedule(plan.schedule, ranks, stages, plan.micro_batches))


def require_order(plan: Plan) -> None:
    """The ranks of a unit are neighbours. Those that shard the state stand at even distances, or at
    two with the pipeline between cp and the state's axis: then a ring passes the ranks of cp first,
    and what counts is how many there are in a server or pod."""
    mesh, state = plan.mesh, plan.state_axis
    if mesh.size("cp") == 1:
        return
    stride = mesh.stride("cp")
    is_beside_tp = mesh.size("tp") == 1 or stride == mesh.stride("tp") * mesh.size("tp")
    is_outside = state == "cp" or mesh.stride(state) >= mesh.size("cp") * stride
    require(
        is_beside_tp and is_outside,
        f"the mesh {mesh.text()} is not simulated: with cp the "
        "axes are expected in the order pp, dp, fsdp, cp, tp, or with pp before cp",
    )


def update_seconds(
    of_plan: Replicas, lowered: Schedule, factors: Factors, silent: Optional[str]
) -> float:
    """The update on the slowest rank. It begins when the norm of all gradients is known, so when
    the last rank has reduced its own."""
    optimizer, gather = [0.0] * lowered.ranks, [0.0] * lowered.ranks
    for stage, (each, rank) in enumerate(zip(of_plan.load.stages, lowered.rank_of)):
        optimizer[rank] += each.optimizer
        gather[rank] += sum(
            calls.count * seconds
            for calls, seconds in zip(each.calls, of_plan.seconds_of(stage, 0, silent))
            if calls.when == UPDATE
        )
    return max(
        max(factors(rank, len(actions))) * optimizer[rank] + gather[rank]
        for rank, actions in enumerate(lowered.actions)
    )


def loads_of(of_plan: Replicas, lowered: Schedule) -> List[LinkLoad]:
    """What a rank of a stage sends, by level and axis: of all pipeline ranks the most."""
    plan, network = of_plan.plan, of_plan.network
    order = ("pp", "dp", "fsdp", "cp", "tp", "ep")
    loads: Dict[Tuple[str, str], LinkLoad] = {}
    for rank in range(lowered.ranks):
        sent: Dict[Tuple[int, int], LinkLoad] = {}
        for stage in lowered.stages_of(rank):
            for calls in of_plan.load.stages[stage].calls:
                group, axis = of_plan.group_of(calls, stage, 0), calls.axis
                if group.count < 2:
                    continue
                level = (network.level_along if axis == "pp" else network.level_of_ring)(group)
                here = sent.setdefault(
                    (network.level_of(group), order.index(axis)), LinkLoad(level.name, axis)
                )
                size = calls.times(plan) * calls.sent(group.count)
                here.sent_bytes += size
                here.seconds += size / level.rate()
        for _, here in sorted(sent.items()):
            most = loads.setdefault((here.level, here.axis), LinkLoad(here.level, here.axis))
            most.sent_bytes = max(most.sent_bytes, here.sent_bytes)
            most.seconds = max(most.seconds, here.seconds)
    return list(loads.values())
