"""Account: what a plan needs in memory, sends, computes and takes, with every formula that led
there."""

from dataclasses import dataclass, field, replace
from typing import List, Tuple

from ringside.planning.formulas import bounds, communication, work
from ringside.planning.formulas.activations import block_activations
from ringside.planning.formulas.parameters import (
    active_parameters,
    parameter_count,
    stage_parameters,
)
from ringside.planning.formulas.pipeline import bubble_seconds, bubble_share
from ringside.planning.formulas.state import shards_of, state_of_model
from ringside.planning.formulas.symbols import tensor_ranks
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


@dataclass
class AxisTraffic:
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


class _Accountant:
    """Fills an Account, section by section. Every number of it is the value of a term."""

    def __init__(self, account: Account):
        self.account, self.model, self.plan = account, account.model, account.plan
        self.machine, self.t = account.machine, tensor_ranks(account.plan)
        self.m = named("m", account.plan.micro_batches)
        self.part = PipelinePart()  # of the busiest rank
        # Of a micro-batch on the busiest stage, without communication; of it, to add up gradients.
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
        account.state_bytes = float(
            self.put(state_of_model(named("P", account.parameters), self.plan.types))
        )

    def memory(self) -> None:
        for memory in memory_of_stages(self.model, self.plan):
            self.account.derivation.append(
                Section(f"Memory of a rank, {memory.name} stage", memory.terms)
            )
            self.account.stages.append(memory)

    def devices(self) -> None:
        """How many devices would do under FSDP alone, each with one micro-batch's activations."""
        self.section("Devices")
        state, memory = (
            named("M_state", self.account.state_bytes),
            named("M_device", self.machine.memory),
        )
        self.put(bounds.devices_for_state(state, memory))
        if not self.model.has_blocks:
            return
        block = self.put(
            block_activations(self.model, replace(self.plan, mesh=Mesh(), sequence_parallel=False))
        )
        kept = self.put(
            term(
                "A_alone",
                "activations of a device's micro-batch, all blocks",
                named("L", self.model.layers) * block,
                Unit.BYTES,
                source_of(block),
            )
        )
        if kept / 2 >= memory:
            return
        count = self.put(bounds.fsdp_devices(state, kept, memory))
        self.put(bounds.fsdp_bytes(state, kept, named("N", count)))

    def work(self) -> None:
        model, plan, machine, put = self.model, self.plan, self.machine, self.put
        self.section("Computing")
        put(work.block_forward_flops(model, plan))
        put(work.head_forward_flops(model, plan))
        put(work.block_recomputed_flops(model, plan))
        self.account.model_flops = float(put(work.model_flops(model, plan)))
        self.account.hardware_flops = float(put(work.hardware_flops(model, plan)))
        put(work.scores_traffic(model, plan))
        put(work.block_forward_traffic(model, plan))
        put(work.block_traffic(model, plan))
        put(work.block_kernels(model, plan))
        block = put(work.block_seconds(model, plan, machine))
        head = put(work.head_seconds(model, plan, machine))
        self.part = part = self._busiest(block, head)
        stage = named("L_stage", part.blocks) * block
        if part.has_head and model.vocabulary > 0:
            stage = stage + head
        if plan.micro_batches > 1 and not plan.fused_gradients:
            sums = work.memory_seconds(
                put(work.accumulation_traffic(stage_parameters(model, self.t, part), plan)), machine
            )
            self.sum_seconds, stage = float(sums), stage + sums
        self.stage_seconds = float(
            put(term("t_stage", "one micro-batch on the busiest stage", stage, Unit.SECONDS))
        )

    def _busiest(self, block: float, head: float) -> PipelinePart:
        """The rank of the pipeline whose work takes longest: one has the head, others may have more
        blocks."""
        last = self.plan.mesh.size("pp") - 1
        parts = {
            rank: pipeline_part(self.model, self.plan, rank) for rank in (last, 0, min(1, last))
        }
        seconds = {
            rank: part.blocks * float(block) + (float(head) if part.has_head else 0.0)
            for rank, part in parts.items()
        }
        self.account.busiest = max(parts, key=seconds.__getitem__)
        return parts[self.account.busiest]

    # Communication.

    def _level_along(self, axis: str) -> Level:
        """The network that joins the ranks of an axis: of messages along pp, else of a ring."""
        stride, count = self.plan.mesh.stride(axis), self.plan.mesh.size(axis)
        index = self.machine.level_index_for(stride * count)
        return (
            self.machine.level_along(index, stride)
            if axis == "pp"
            else self.machine.level_of_ring(index, count, stride)
        )

    def add(
        self,
        axis: str,
        what: str,
        calls: float,
        messages: float,
        sent: Term,
        hidden_behind: float,
        share: float = 1.0,
    ) -> None:
        """Bytes and calls along an axis, in one step; the time follows from its level."""
        level = self._level_along(axis)
        line = self.put(
            term(
                getattr(sent, "symbol", ""),
                f"{axis}: {what}, in one step",
                formula_of(sent),
                Unit.BYTES,
                source_of(sent),
            )
        )
        seconds = self.put(communication.link_seconds(calls * messages, line, level))
        hidden = min(share * self.machine.overlap * float(seconds), hidden_behind)
        self.account.traffic.append(
            AxisTraffic(axis, what, level.name, float(calls), float(sent), float(seconds), hidden)
        )

    def _step(self, formula: float, source: Term) -> Term:
        return term("D_step", "", formula, Unit.BYTES, source_of(source))

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
        steps = (1 if plan.sequence_parallel else 2) * (plan.mesh.size("tp") - 1)
        total = self.m * sent
        sums = communication.tensor_bytes_of_sums(model, plan, part)
        if sums > 0:
            total = total + put(sums)
        self.add(
            "tp",
            "all-gathers, reduce-scatters" if plan.sequence_parallel else "all-reduces",
            self.m * count,
            steps,
            self._step(total, block),
            0.0,
        )

    def context_traffic(self) -> None:
        """A ring passes keys on while attention runs; the other exchanges are waited for."""
        model, plan, blocks = self.model, self.plan, named("L_stage", self.part.blocks)
        calls = self.put(communication.context_calls_of_block(plan))
        sent = self.put(communication.context_bytes_of_block(model, plan))
        is_ring = plan.exchange == "ring"
        share = float(work.attention_flops(model, plan)) / float(
            work.block_forward_flops(model, plan)
        )
        self.add(
            "cp",
            plan.exchange,
            self.m * blocks * calls,
            1 if is_ring else plan.mesh.size("cp") - 1,
            self._step(self.m * blocks * sent, sent),
            plan.micro_batches * self.stage_seconds * share if is_ring else 0.0,
        )

    def expert_traffic(self) -> None:
        """The experts wait for their tokens, and what follows for their outputs. When backward has
        ended, the gradients of all but the experts are averaged."""
        plan, blocks, n = self.plan, named("L_stage", self.part.blocks), self.plan.mesh.size("ep")
        calls = self.put(communication.expert_calls_of_block(self.model, plan))
        sent = self.put(communication.expert_bytes_of_block(self.model, plan))
        self.add(
            "ep",
            "all-to-alls of tokens",
            self.m * blocks * calls,
            n - 1,
            self._step(self.m * blocks * sent, sent),
            0.0,
        )
        beside = communication.parameters_beside_experts(self.model, self.t, self.part)
        held = self.put(
            term(
                "P_shared",
                "parameters of the busiest stage but the experts, a shard",
                beside / named("N", plan.state_ranks if plan.stage > 0 else 1),
            )
        )
        self.add(
            "ep",
            "all-reduce of gradients",
            constant(1),
            2 * (n - 1),
            communication.ring_all_reduce_bytes(
                named("n", n), named("e_g", plan.types.gradients) * held
            ),
            0.0,
        )

    def data_traffic(self) -> None:
        """Gradients in buckets of 25 MB, where parameters are whole. They are reduced during the
        last micro-batch's backward, two thirds of its time; what ZeRO then gathers again is not
        hidden."""
        plan, axis, ranks = self.plan, self.plan.state_axis, self.plan.state_ranks
        n, gradient = named("n", ranks), named("e_g", plan.types.gradients)
        held = self.put(
            term(
                "P_stage",
                "parameters of the busiest stage, on one rank",
                stage_parameters(self.model, self.t, self.part),
            )
        )
        buckets = ceil(gradient * held / constant(plan.bucket_bytes))
        ring, backward = ranks - 1, self.stage_seconds * 2 / 3
        if plan.stage == 0:
            stride, count = plan.mesh.stride(axis), plan.mesh.size(axis)
            tree = self.machine.tree_latency(
                self.machine.level_index_for(stride * count), count, stride
            )
            # The hops of a ring, or of a tree between servers.
            hops = min(2.0 * ring, tree / self._level_along(axis).latency) if tree > 0 else 2 * ring
            self.add(
                axis,
                "all-reduce of gradients",
                buckets,
                hops,
                communication.ring_all_reduce_bytes(n, gradient * held),
                backward,
            )
            return
        # Stage 2 keeps no whole gradients, so it reduces those of every micro-batch.
        times = constant(1) if plan.stage == 1 else self.m
        self.add(
            axis,
            "reduce-scatter of gradients",
            times * buckets,
            ring,
            communication.ring_all_gather_bytes(n, times * gradient * held),
            backward * float(times),
        )
        self.add(
            axis,
            "all-gather of parameters",
            buckets,
            ring,
            communication.ring_all_gather_bytes(n, named("e", plan.types.parameters) * held),
            0.0,
        )

    def copies_traffic(self) -> None:
        """Copies of a shard of the gradients, along dp in a mesh with fsdp, averaged when backward
        has ended."""
        plan, n = self.plan, self.plan.copies
        held = self.put(
            term(
                "P_shard",
                "parameters of the busiest stage, a rank's shard",
                stage_parameters(self.model, self.t, self.part) / named("N", plan.state_ranks),
            )
        )
        self.add(
            "dp",
            "all-reduce of the shard's gradients",
            constant(1),
            2 * (n - 1),
            communication.ring_all_reduce_bytes(
                named("n", n), named("e_g", plan.types.gradients) * held
            ),
            0.0,
        )

    def sharded_traffic(self) -> None:
        """Parameters are gathered for forward, and those of the blocks again for backward, one unit
        ahead of the computation. Meanwhile, gradients are reduced while the next unit's backward
        runs. Each block hides one call: the gathers for forward have the time of forward, and the
        other two share that of backward, twice as long."""
        plan, axis, n = self.plan, self.plan.state_axis, named("n", self.plan.state_ranks)
        gradient, parameter = named("e_g", plan.types.gradients), named("e", plan.types.parameters)
        units = communication.sharded_units(self.model, self.t, self.part)
        gathers = unit_gathers(self.model, plan, self.account.busiest)
        held = self.put(
            term(
                "P_stage",
                "parameters of the busiest stage, whole",
                stage_parameters(self.model, self.t, self.part),
            )
        )
        once, again = (
            self.put(term(symbol, what, named(symbol, numbers), source="counted unit by unit"))
            for symbol, what, numbers in (
                ("P_forward", "gathered for forward, in a step", gathers.forward),
                ("P_backward", "gathered for backward", gathers.backward),
            )
        )
        forward = plan.micro_batches * self.stage_seconds / 3
        for what, count, hidden, buffer in (
            ("all-gather for forward", units.count, units.hidden, parameter * once),
            ("all-gather for backward", units.again, units.hidden_again, parameter * again),
            ("reduce-scatter of gradients", units.count, units.hidden, self.m * gradient * held),
        ):
            self.add(
                axis,
                what,
                self.m * count,
                plan.state_ranks - 1,
                communication.ring_all_gather_bytes(n, buffer),
                forward * hidden / self.part.blocks,
                hidden / count,
            )

    def pipeline_traffic(self) -> None:
        """A stage sends an activation on and a gradient back for each micro-batch, if there is a
        stage on another rank. Stages run ahead of each other, so only filling and draining the
        pipeline waits."""
        plan, k = self.plan, named("k", self.part.messages)
        message, level = (
            self.put(communication.boundary_bytes(self.model, plan)),
            self._level_along("pp"),
        )
        ramp = (
            2
            * (plan.mesh.size("pp") - 1)
            * float(communication.link_seconds(constant(1), message, level))
        )
        sent = k * self.m * message
        sums = communication.pipeline_bytes_of_sums(self.model, plan, self.part)
        if sums > 0:
            sent = sent + self.put(sums)
        line = self._step(sent, message)
        all_seconds = float(communication.link_seconds(k * self.m, line, level))
        self.add(
            "pp",
            "activations on, gradients back",
            k * self.m,
            1,
            line,
            max(0.0, all_seconds - ramp),
        )

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
        account, model, plan, machine, put = (
            self.account,
            self.model,
            self.plan,
            self.machine,
            self.put,
        )
        self.section("Time of a step")
        exposed = {
            axis: sum(each.exposed for each in account.traffic if each.axis == axis)
            for axis in AXES
        }
        computing, tensor = named("t_stage", self.stage_seconds), named("t_tp", exposed["tp"])
        others = named(
            "t_exposed", sum(each.exposed for each in account.traffic if each.axis != "tp")
        )
        bubble = constant(0)
        if plan.mesh.size("pp") > 1:
            bubble = put(bubble_seconds(plan, computing + tensor / self.m))
            account.bubble_share = float(put(bubble_share(plan)))
        step_traffic = put(
            work.optimizer_traffic(
                stage_parameters(model, self.t, self.part), plan.types, shards_of(plan).optimizer
            )
        )
        update = put(work.optimizer_seconds(step_traffic, machine))
        step = put(
            term(
                "t",
                "one step",
                self.m * computing + tensor + bubble + others + update,
                Unit.SECONDS,
                "micro-batches, tensor parallel, bubble, exposed communication, optimizer",
            )
        )
        account.step_seconds = float(step)
        account.utilization = float(
            put(
                work.model_flops_utilization(
                    named("F_model", account.model_flops), step, plan.mesh.ranks(), machine
                )
            )
        )

        m, blocks = float(plan.micro_batches), self.part.blocks
        other_ops = m * (
            blocks * float(work.memory_seconds(work.block_traffic(model, plan), machine))
            + self.sum_seconds
        )
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
        split = bounds.Split(
            self.model.d_model,
            self.model.d_ff,
            fsdp,
            tensor,
            self.machine.peak,
            level.bytes_per_second * level.efficiency,
            plan.torus_fsdp,
            plan.torus_tp,
        )
        self.section("Least batch, for two matrices of a block, forward")
        for line in bounds.least_batch(split, self.account.tokens):
            self.put(line)


def account(model: Model, plan: Plan, machine: Machine) -> Account:
    """Raises RingsideError if the plan is invalid, or needs more devices than the machine has."""
    validate(plan, model)
    machine.level_for(plan.mesh.ranks())
    result = Account(
        on_mesh(model, plan.mesh.size("ep")),
        plan,
        machine,
        tokens=float(plan.batch * plan.sequence),
    )
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
