"""Account: what a plan needs in memory, sends, computes and takes, with every formula that led
there."""

from dataclasses import dataclass, field, replace
from typing import Callable, Dict, List, NamedTuple, Tuple

from ringside.planning.formulas import bounds, communication, work
from ringside.planning.formulas.activations import block_activations
from ringside.planning.formulas.parameters import (
    active_parameters,
    parameter_count,
    stage_parameters,
)
from ringside.planning.formulas.pipeline import bubble_seconds, bubble_share
from ringside.planning.formulas.state import shards_of, state_of_model
from ringside.planning.formulas.symbols import Symbols
from ringside.planning.formulas.unit_gathers import unit_gathers
from ringside.planning.json_fields import require
from ringside.planning.machine import Level, Machine
from ringside.planning.memory import RankMemory, memory_of_stages
from ringside.planning.mesh import AXES, Mesh
from ringside.planning.model import Model, on_mesh
from ringside.planning.plan import PipelinePart, Plan, pipeline_part, validate
from ringside.planning.quantity import (
    Term,
    Unit,
    ceil,
    constant,
    formula_of,
    named,
    source_of,
    term,
)


@dataclass
class Section:
    """The formulas of one subject, in the order in which one derives them."""

    title: str
    terms: List[Term] = field(default_factory=list)


class AxisTraffic(NamedTuple):
    """What one rank of the busiest stage sends along one axis in one step."""

    axis: str
    what: str  # "all-reduce of activations"
    level: str  # the network that carries it
    calls: float
    bytes: float
    seconds: float
    hidden: float  # seconds that run while the device computes

    @property
    def exposed(self) -> float:
        return self.seconds - self.hidden


@dataclass
class Account:
    """`active_parameters` are those of a token, in a model with experts; otherwise 0. Without the
    model's blocks (Model.has_blocks) all after `stages` is empty."""

    model: Model
    plan: Plan
    machine: Machine
    parameters: float = 0.0
    active_parameters: float = 0.0
    state_bytes: float = 0.0  # parameters, gradients, masters and moments of the whole model
    stages: List[RankMemory] = field(default_factory=list)  # first, one in the middle, last
    busiest: int = 0  # the coordinate along pp of the rank whose traffic and time follow
    traffic: List[AxisTraffic] = field(default_factory=list)
    time: List[Tuple[str, float]] = field(default_factory=list)  # parts of the step, in seconds
    tokens: float = 0.0  # of a step, over all ranks
    model_flops: float = 0.0
    hardware_flops: float = 0.0
    bubble_share: float = 0.0
    step_seconds: float = 0.0
    utilization: float = 0.0
    derivation: List[Section] = field(default_factory=list)

    def most_memory(self) -> float:
        """Of a rank, in bytes."""
        return max(stage.total() for stage in self.stages)

    def fits(self) -> bool:
        return self.most_memory() <= self.machine.memory

    def binds(self) -> Tuple[str, float]:
        """The largest part of the step's time."""
        require(self.time, f"the plan has no times: the blocks of {self.model.name} are not known")
        return max(self.time, key=lambda row: row[1])


# What computing a step takes, in the order in which one derives it.
COMPUTING: Tuple[Callable[[Model, Plan], Term], ...] = (
    work.block_forward_flops,
    work.head_forward_flops,
    work.block_recomputed_flops,
    work.model_flops,
    work.hardware_flops,
    work.scores_traffic,
    work.block_forward_traffic,
    work.block_traffic,
    work.block_kernels,
)


def _in_step(sent: float, source: Term) -> Term:
    """Bytes of a step that are a multiple of those of `source`."""
    return term("D_step", "", sent, Unit.BYTES, source_of(source))


class _Accountant:
    """Fills an Account, section by section. Every number of it is the value of a term."""

    def __init__(self, account: Account):
        self.account, self.model, self.plan = account, account.model, account.plan
        self.machine, self.x = account.machine, Symbols(account.model, account.plan)
        # What work() finds out of the busiest stage: its parameters on one rank, and the seconds of
        # a micro-batch without communication; of these, to add up gradients.
        self.part, self.held = PipelinePart(), 0.0
        self.stage_seconds = self.sum_seconds = 0.0

    def section(self, title: str) -> None:
        self.account.derivation.append(Section(title))

    def put(self, line: Term) -> Term:
        """Adds a term to the derivation."""
        self.account.derivation[-1].terms.append(line)
        return line

    def parameters(self) -> None:
        account = self.account
        self.section("Parameters")
        for line in parameter_count(self.model):
            account.parameters = float(self.put(line))
        if self.model.experts:
            account.active_parameters = float(self.put(active_parameters(self.model)))
        state = state_of_model(named("P", account.parameters), self.plan.types)
        account.state_bytes = float(self.put(state))

    def memory(self) -> None:
        for memory in memory_of_stages(self.model, self.plan):
            section = Section(f"Memory of a rank, {memory.name} stage", memory.terms)
            self.account.derivation.append(section)
            self.account.stages.append(memory)

    def devices(self) -> None:
        """How many devices would do under FSDP alone, each with one micro-batch's activations."""
        self.section("Devices")
        state = named("M_state", self.account.state_bytes)
        memory = named("M_device", self.machine.memory)
        self.put(bounds.devices_for_state(state, memory))
        if not self.model.has_blocks:
            return
        alone = replace(self.plan, mesh=Mesh(), sequence_parallel=False)
        block = self.put(block_activations(self.model, alone))
        what = "activations of a device's micro-batch, all blocks"
        kept = term("A_alone", what, self.x.L * block, Unit.BYTES, source_of(block))
        self.put(kept)
        if kept / 2 >= memory:
            return
        count = self.put(bounds.fsdp_devices(state, kept, memory))
        self.put(bounds.fsdp_bytes(state, kept, named("N", count)))

    def work(self) -> None:
        model, plan, machine = self.model, self.plan, self.machine
        self.section("Computing")
        lines = {each: self.put(each(model, plan)) for each in COMPUTING}
        self.account.model_flops = float(lines[work.model_flops])
        self.account.hardware_flops = float(lines[work.hardware_flops])
        block = self.put(work.block_seconds(model, plan, machine))
        head = self.put(work.head_seconds(model, plan, machine))
        self.part = part = self._busiest(block, head)
        self.held = stage_parameters(model, self.x.t, part)
        stage = named("L_stage", part.blocks) * block
        if part.has_head and model.vocabulary > 0:
            stage = stage + head
        if plan.micro_batches > 1 and not plan.fused_gradients:
            traffic = self.put(work.accumulation_traffic(self.held, plan))
            sums = work.memory_seconds(traffic, machine)
            self.sum_seconds, stage = float(sums), stage + sums
        what = "one micro-batch on the busiest stage"
        self.stage_seconds = float(self.put(term("t_stage", what, stage, Unit.SECONDS)))

    def _busiest(self, block: float, head: float) -> PipelinePart:
        """The rank of the pipeline whose work takes longest: one has the head, others may have more
        blocks."""
        last = self.plan.mesh.size("pp") - 1
        ranks = (last, 0, min(1, last))
        parts = {rank: pipeline_part(self.model, self.plan, rank) for rank in ranks}

        def seconds(rank: int) -> float:
            return parts[rank].blocks * float(block) + float(head) * parts[rank].has_head

        self.account.busiest = max(parts, key=seconds)
        return parts[self.account.busiest]

    # Communication.

    def _level_along(self, axis: str) -> Level:
        """The network that joins the ranks of an axis: of messages along pp, else of a ring."""
        stride, count = self.plan.mesh.stride(axis), self.plan.mesh.size(axis)
        index = self.machine.level_index_for(stride * count)
        if axis == "pp":
            return self.machine.level_along(index, stride)
        return self.machine.level_of_ring(index, count, stride)

    def send(
        self,
        axis: str,
        what: str,
        calls: float,
        messages: float,
        sent: Term,
        behind: float = 0.0,
        share: float = 1.0,
    ) -> None:
        """Calls of so many messages, one after the other, and the bytes sent along an axis in one
        step; the time follows from its level. A share of them may hide behind so many seconds of
        computing."""
        level, what_in_step = self._level_along(axis), f"{axis}: {what}, in one step"
        symbol = getattr(sent, "symbol", "")
        line = term(symbol, what_in_step, formula_of(sent), Unit.BYTES, source_of(sent))
        seconds = self.put(communication.link_seconds(calls * messages, self.put(line), level))
        hidden = min(share * self.machine.overlap * float(seconds), behind)
        self.account.traffic.append(
            AxisTraffic(axis, what, level.name, float(calls), float(sent), float(seconds), hidden)
        )

    def all_reduce(self, axis: str, what: str, n: int, buffer: float) -> None:
        """One ring all-reduce when backward has ended."""
        sent = communication.ring_all_reduce_bytes(named("n", n), buffer)
        self.send(axis, what, constant(1), 2 * (n - 1), sent)

    def all_gather(
        self, what: str, calls: float, buffer: float, behind: float = 0.0, share: float = 1.0
    ) -> None:
        """All-gathers or reduce-scatters along the axis that shards the state."""
        n = self.plan.state_ranks
        sent = communication.ring_all_gather_bytes(named("n", n), buffer)
        self.send(self.plan.state_axis, what, calls, n - 1, sent, behind, share)

    def tensor_traffic(self) -> None:
        """Tensor-parallel calls are on the critical path: what follows needs their result."""
        model, plan, part, put = self.model, self.plan, self.part, self.put
        calls = put(communication.tensor_calls_of_block(model, plan))
        block = put(communication.tensor_bytes_of_block(model, plan))
        edge = put(communication.tensor_bytes_of_edge(model, plan))
        loss = put(communication.tensor_bytes_of_cross_entropy(plan))
        blocks = named("L_stage", part.blocks)
        sent, count = blocks * block, blocks * calls
        if part.has_embedding and model.vocabulary > 0:
            sent, count = sent + edge, count + 1
        if part.has_head and model.vocabulary > 0:
            sent, count = sent + edge + loss, count + 4
        total, sums = self.x.m * sent, communication.tensor_bytes_of_sums(model, plan, part)
        if sums > 0:
            total = total + put(sums)
        what, steps = "all-reduces", 2 * (plan.mesh.size("tp") - 1)
        if plan.sequence_parallel:
            what, steps = "all-gathers, reduce-scatters", steps // 2
        self.send("tp", what, self.x.m * count, steps, _in_step(total, block))

    def context_traffic(self) -> None:
        """A ring passes keys on while attention runs; the other exchanges are waited for."""
        model, plan, blocks = self.model, self.plan, named("L_stage", self.part.blocks)
        calls = self.x.m * blocks * self.put(communication.context_calls_of_block(plan))
        block = self.put(communication.context_bytes_of_block(model, plan))
        sent = _in_step(self.x.m * blocks * block, block)
        steps, behind = plan.mesh.size("cp") - 1, 0.0
        if plan.exchange == "ring":
            forward = float(work.block_forward_flops(model, plan))
            share = float(work.attention_flops(model, plan)) / forward
            steps, behind = 1, plan.micro_batches * self.stage_seconds * share
        self.send("cp", plan.exchange, calls, steps, sent, behind)

    def expert_traffic(self) -> None:
        """The experts wait for their tokens, and what follows for their outputs. When backward has
        ended, the gradients of all but the experts are averaged."""
        plan, blocks, n = self.plan, named("L_stage", self.part.blocks), self.plan.mesh.size("ep")
        calls = self.x.m * blocks * self.put(communication.expert_calls_of_block(self.model, plan))
        block = self.put(communication.expert_bytes_of_block(self.model, plan))
        sent = _in_step(self.x.m * blocks * block, block)
        self.send("ep", "all-to-alls of tokens", calls, n - 1, sent)
        beside = communication.parameters_beside_experts(self.model, self.x.t, self.part)
        shard = beside / named("N", plan.state_ranks if plan.stage > 0 else 1)
        what = "parameters of the busiest stage but the experts, a shard"
        held = self.put(term("P_shared", what, shard))
        self.all_reduce("ep", "all-reduce of gradients", n, self.x.e_g * held)

    def data_traffic(self) -> None:
        """Gradients in buckets of 25 MB, where parameters are whole. They are reduced during the
        last micro-batch's backward, two thirds of its time; what ZeRO then gathers again is not
        hidden."""
        plan, axis, ring = self.plan, self.plan.state_axis, self.plan.state_ranks - 1
        what = "parameters of the busiest stage, on one rank"
        held = self.put(term("P_stage", what, self.held))
        buckets = ceil(self.x.e_g * held / constant(plan.bucket_bytes))
        backward = self.stage_seconds * 2 / 3
        if plan.stage == 0:
            stride, count = plan.mesh.stride(axis), plan.mesh.size(axis)
            index = self.machine.level_index_for(stride * count)
            tree = self.machine.tree_latency(index, count, stride)
            # The hops of a ring, or of a tree between servers.
            hops = min(2.0 * ring, tree / self._level_along(axis).latency) if tree > 0 else 2 * ring
            n = named("n", plan.state_ranks)
            sent = communication.ring_all_reduce_bytes(n, self.x.e_g * held)
            self.send(axis, "all-reduce of gradients", buckets, hops, sent, backward)
            return
        # Stage 2 keeps no whole gradients, so it reduces those of every micro-batch.
        times = constant(1) if plan.stage == 1 else self.x.m
        gradients, behind = times * self.x.e_g * held, backward * float(times)
        self.all_gather("reduce-scatter of gradients", times * buckets, gradients, behind)
        parameters = named("e", plan.types.parameters) * held
        self.all_gather("all-gather of parameters", buckets, parameters)

    def copies_traffic(self) -> None:
        """Copies of a shard of the gradients, along dp in a mesh with fsdp, averaged when backward
        has ended."""
        shard = self.held / named("N", self.plan.state_ranks)
        what = "parameters of the busiest stage, a rank's shard"
        gradients = self.x.e_g * self.put(term("P_shard", what, shard))
        self.all_reduce("dp", "all-reduce of the shard's gradients", self.plan.copies, gradients)

    def sharded_traffic(self) -> None:
        """Parameters are gathered for forward, and those of the blocks again for backward, one unit
        ahead of the computation. Meanwhile, gradients are reduced while the next unit's backward
        runs. Each block hides one call: the gathers for forward have the time of forward, and the
        other two share that of backward, twice as long."""
        plan, parameter, counted = self.plan, self.plan.types.parameters, "counted unit by unit"
        units = communication.sharded_units(self.model, self.x.t, self.part)
        gathers = unit_gathers(self.model, plan, self.account.busiest)
        held = self.put(term("P_stage", "parameters of the busiest stage, whole", self.held))
        once, again = (
            self.put(term(symbol, what, named(symbol, numbers), source=counted))
            for symbol, what, numbers in (
                ("P_forward", "gathered for forward, in a step", gathers.forward),
                ("P_backward", "gathered for backward", gathers.backward),
            )
        )
        e, gradients = named("e", parameter), self.x.m * self.x.e_g * held
        forward = plan.micro_batches * self.stage_seconds / 3
        for what, count, hidden, buffer in (
            ("all-gather for forward", units.count, units.hidden, e * once),
            ("all-gather for backward", units.again, units.hidden_again, e * again),
            ("reduce-scatter of gradients", units.count, units.hidden, gradients),
        ):
            behind = forward * hidden / self.part.blocks
            self.all_gather(what, self.x.m * count, buffer, behind, hidden / count)

    def pipeline_traffic(self) -> None:
        """A stage sends an activation on and a gradient back for each micro-batch, if there is a
        stage on another rank. Stages run ahead of each other, so only filling and draining the
        pipeline waits."""
        plan, k, level = self.plan, named("k", self.part.messages), self._level_along("pp")
        message = self.put(communication.boundary_bytes(self.model, plan))
        one = float(communication.link_seconds(constant(1), message, level))
        ramp = 2 * (plan.mesh.size("pp") - 1) * one
        sent = k * self.x.m * message
        sums = communication.pipeline_bytes_of_sums(self.model, plan, self.part)
        if sums > 0:
            sent = sent + self.put(sums)
        calls, what = k * self.x.m, "activations on, gradients back"
        behind = max(0.0, float(communication.link_seconds(calls, sent, level)) - ramp)
        self.send("pp", what, calls, 1, _in_step(sent, message), behind)

    def traffic(self) -> None:
        plan, mesh = self.plan, self.plan.mesh
        self.section("Communication of a rank of the busiest stage")
        for applies, add in (
            (mesh.size("tp") > 1, self.tensor_traffic),
            (mesh.size("cp") > 1, self.context_traffic),
            (mesh.size("ep") > 1, self.expert_traffic),
            (plan.shards_parameters, self.sharded_traffic),
            (plan.state_ranks > 1 and plan.stage < 3, self.data_traffic),
            (plan.copies > 1, self.copies_traffic),
            (mesh.size("pp") > 1, self.pipeline_traffic),
        ):
            if applies:
                add()
        if not self.account.derivation[-1].terms:
            self.account.derivation.pop()

    # The step.

    def time(self) -> None:
        account, model, plan, machine = self.account, self.model, self.plan, self.machine
        self.section("Time of a step")
        exposed: Dict[str, float] = dict.fromkeys(AXES, 0.0)
        for each in account.traffic:
            exposed[each.axis] += each.exposed
        rest = sum(each.exposed for each in account.traffic if each.axis != "tp")
        computing, tensor = named("t_stage", self.stage_seconds), named("t_tp", exposed["tp"])
        others, bubble = named("t_exposed", rest), constant(0)
        if plan.mesh.size("pp") > 1:
            bubble = self.put(bubble_seconds(plan, computing + tensor / self.x.m))
            account.bubble_share = float(self.put(bubble_share(plan)))
        shards = shards_of(plan).optimizer
        traffic = self.put(work.optimizer_traffic(self.held, plan.types, shards))
        update = self.put(work.optimizer_seconds(traffic, machine))
        step = self.x.m * computing + tensor + bubble + others + update
        parts = "micro-batches, tensor parallel, bubble, exposed communication, optimizer"
        step = self.put(term("t", "one step", step, Unit.SECONDS, parts))
        account.step_seconds, flops = float(step), named("F_model", account.model_flops)
        share = work.model_flops_utilization(flops, step, plan.mesh.ranks(), machine)
        account.utilization = float(self.put(share))

        m, blocks = float(plan.micro_batches), self.part.blocks
        memory = float(work.memory_seconds(work.block_traffic(model, plan), machine))
        other_ops = m * (blocks * memory + self.sum_seconds)
        kernels = m * blocks * float(work.kernel_seconds(work.block_kernels(model, plan), machine))
        rows = [
            ("matrix products", m * self.stage_seconds - other_ops - kernels),
            ("other ops (memory bandwidth)", other_ops),
            ("launches of kernels", kernels),
            *((f"{axis} communication, exposed", exposed[axis]) for axis in reversed(AXES)),
            ("pipeline bubble", float(bubble)),
            ("optimizer (memory bandwidth)", float(update)),
        ]
        account.time = [row for i, row in enumerate(rows) if row[1] > 0 or i in (0, len(rows) - 1)]

    def least_batch(self) -> None:
        """Which batch is large enough to hide what FSDP and tensor parallel send."""
        plan, level = self.plan, self.machine.levels[0]
        fsdp, tensor = plan.mesh.size("fsdp"), plan.mesh.size("tp")
        if fsdp == 1 or tensor == 1 or self.model.d_ff == 0:
            return
        rate = level.bytes_per_second * level.efficiency
        sizes = (self.model.d_model, self.model.d_ff, fsdp, tensor, self.machine.peak, rate)
        split = bounds.Split(*sizes, plan.torus_fsdp, plan.torus_tp)
        self.section("Least batch, for two matrices of a block, forward")
        for line in bounds.least_batch(split, self.account.tokens):
            self.put(line)
        self.section("A smaller batch: what helps, and what does not")
        for line in bounds.smaller_batch(split):
            self.put(line)


def account(model: Model, plan: Plan, machine: Machine) -> Account:
    """Raises RingsideError if the plan is invalid, or needs more devices than the machine has."""
    validate(plan, model)
    machine.level_for(plan.mesh.ranks())
    placed, tokens = on_mesh(model, plan.mesh.size("ep")), float(plan.batch * plan.sequence)
    result = Account(placed, plan, machine, tokens=tokens)
    accountant = _Accountant(result)
    accountant.parameters()
    accountant.memory()
    accountant.devices()
    if model.has_blocks:
        accountant.work()
        accountant.traffic()
        accountant.time()
        accountant.least_batch()
    return result
