"""How long a step of a plan takes on a machine that is not here, and what it waits for.

    s = simulate(model, plan, machine)
    s.step, s.bubble, s.exposed, s.loads

The account answers the same with closed formulas. They agree where both apply: all stages take the
same time, messages between them take none, and the data ranks' communication is hidden. Here stages
may differ, a message may cross a slower network than another, ranks may be slow, and what hides
behind what follows from the schedule.
"""

from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from ringside.planning import schedule_file
from ringside.planning.formulas.work import model_flops, model_flops_utilization
from ringside.planning.json_fields import require
from ringside.planning.longest_path import Replica, Timeline, Times, Walk
from ringside.planning.machine import Level, Machine
from ringside.planning.model import Model, on_mesh
from ringside.planning.network import MeshRanks, Network, RankGroup
from ringside.planning.pipeline import lower, make_schedule
from ringside.planning.plan import Plan, stages_per_rank, validate
from ringside.planning.quantity import values_only
from ringside.planning.replicas import Replicas
from ringside.planning.schedules import GENERATORS, Schedule
from ringside.planning.stage_load import Calls, MeasuredStage, PlanLoad, load_of, take_measured
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
    tokens: int = field(init=False)  # of a step, over all ranks

    def __post_init__(self) -> None:
        self.tokens = self.plan.batch * self.plan.sequence

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
    lowered = schedule_of(plan)
    load = load_of(model, plan, machine)
    if measured:
        take_measured(measured, load)
    replicas = Replicas(plan, load, lowered.rank_of, machine)
    factors: Dict[Tuple[int, int], Optional[Times]] = {}

    def run(silent: Optional[str] = None) -> "Run":
        some = replicas.make(stragglers, fold, silent)
        return run_of(replicas, lowered, some, machine, stragglers, factors, silent)

    first = run()
    exposed = [(axis, first.step - run(axis).step) for axis in mesh.axes() if mesh.size(axis) > 1]
    undisturbed = None
    if stragglers.any():
        nobody = Stragglers()
        undisturbed = run_of(
            replicas, lowered, replicas.make(nobody, True), machine, nobody, {}, None
        ).step
    with values_only():
        utilization = model_flops_utilization(
            model_flops(model, plan), first.step, mesh.ranks(), machine
        )
    return Simulation(
        model,
        plan,
        machine,
        load,
        lowered,
        first.replicas,
        first.timeline,
        first.step,
        first.timeline.bubble(first.replicas),
        first.optimizer,
        undisturbed,
        exposed,
        loads_of(plan, load, lowered, Network(machine)),
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


@dataclass
class Run:
    """One pass of the engine."""

    replicas: List[Replica]
    timeline: Timeline
    optimizer: float

    @property
    def step(self) -> float:
        return self.timeline.reduced + self.optimizer


def run_of(
    of: Replicas,
    lowered: Schedule,
    replicas: List[Replica],
    machine: Machine,
    stragglers: Stragglers,
    factors: Dict[Tuple[int, int], Optional[Times]],
    silent: Optional[str],
) -> Run:
    walk = Walk(lowered, replicas, machine.overlap, stragglers, factors)
    timeline = walk.run()
    return Run(replicas, timeline, update_seconds(walk, of, silent))


def update_seconds(walk: Walk, of: Replicas, silent: Optional[str]) -> float:
    """The update on the slowest rank. It begins when the norm of all gradients is known, so when
    the last rank has reduced its own."""
    ranks, load = len(walk.lowered.actions), of.load
    optimizer, gather = [0.0] * ranks, [0.0] * ranks

    def seconds(calls: Calls, axis: str, rank: int) -> float:
        if calls.count == 0 or silent == axis:
            return 0.0
        group = of.mesh.group(axis, axis == load.state_axis, rank, 0)
        return calls.count * of.network.collective_seconds(calls.collective, group, calls.size)

    for each, rank in zip(load.stages, walk.lowered.rank_of):
        optimizer[rank] += each.optimizer
        gather[rank] += (
            seconds(each.gather_updated, load.state_axis, rank)
            + seconds(each.average_copies, "dp", rank)
            + seconds(each.average_shared, "ep", rank)
        )
    longest = 0.0
    for rank in range(ranks):
        factors = walk.factors_of(rank, len(walk.lowered.actions[rank]))
        most = 1.0 if factors is None else max(factors)
        longest = max(longest, most * optimizer[rank] + gather[rank])
    return longest


def loads_of(plan: Plan, load: PlanLoad, lowered: Schedule, network: Network) -> List[LinkLoad]:
    """What a rank of a stage sends, by level and axis: of all pipeline ranks the most."""
    mesh, m = MeshRanks(plan.mesh), plan.micro_batches
    order = {axis: i for i, axis in enumerate(("pp", "dp", "fsdp", "cp", "tp", "ep"))}
    loads: Dict[Tuple[str, str], LinkLoad] = {}
    for rank in range(len(lowered.actions)):
        sent: Dict[Tuple[int, int], LinkLoad] = {}

        def sends(
            axis: str, group: RankGroup, size: float, level_of: Callable[[RankGroup], Level]
        ) -> None:
            level = level_of(group)
            here = sent.setdefault(
                (network.level_of(group), order[axis]), LinkLoad(level.name, axis)
            )
            here.sent_bytes += size
            here.seconds += size / level.rate()

        for stage in lowered.stages_of(rank):
            each = load.stages[stage]
            for axis, calls, times in load.calls_of(each, m):
                group = mesh.group(axis, axis == load.state_axis, rank, 0)
                if calls.count > 0 and group.count > 1:
                    sends(axis, group, times * calls.sent(group.count), network.level_of_ring)
            if each.tensor_sums > 0:
                sends("tp", mesh.along("tp", rank, 0), each.tensor_sums, network.level_of_ring)
            for other in (stage + 1, stage - 1):
                if 0 <= other < lowered.stages and lowered.rank_of[other] != rank:
                    a, b = sorted((mesh.rank(rank, 0), mesh.rank(lowered.rank_of[other], 0)))
                    sends("pp", RankGroup(a, 2, b - a), m * load.message_bytes, network.level_along)
        for _, here in sorted(sent.items()):
            most = loads.setdefault((here.level, here.axis), LinkLoad(here.level, here.axis))
            most.sent_bytes = max(most.sent_bytes, here.sent_bytes)
            most.seconds = max(most.seconds, here.seconds)
    return list(loads.values())
