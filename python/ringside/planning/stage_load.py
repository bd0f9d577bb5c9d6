"""What one stage of a plan computes and sends, on one rank. The longest path is made of these
durations.

A stage is one of the schedule: a rank of the interleaved schedule holds `chunks` of them. The
formulas are those of the account.
"""

import math
from dataclasses import dataclass, field
from typing import Iterator, List, NamedTuple, Sequence, Tuple

from ringside.planning.formulas import communication, parameters, state, symbols, work
from ringside.planning.json_fields import require
from ringside.planning.machine import Machine
from ringside.planning.model import Model
from ringside.planning.plan import PipelinePart, Plan, placement_of
from ringside.planning.quantity import values_only
from ringside.planning.schedules import layers_of_stage


class Calls(NamedTuple):
    """`count` collectives, each of a buffer of `size` bytes: the whole buffer, on all ranks
    together; or messages ("point_to_point") to the next rank. Of sharded parameters, so many of
    them as `hidden` may run while a block computes."""

    collective: str = "all_reduce"
    count: float = 0.0
    size: float = 0.0
    hidden: float = 0.0

    def sent(self, ranks: int) -> float:
        """Bytes that one rank sends in these calls: a ring sends a buffer twice to sum it on all
        ranks, and once to gather or scatter it."""
        if self.collective == "point_to_point":
            return self.count * self.size
        times = 2 if self.collective == "all_reduce" else 1
        return times * self.count * self.size * (ranks - 1) / ranks


@dataclass
class StageLoad:
    # Seconds that a rank computes for one micro-batch: forward, and the two halves of backward.
    forward: float = 0.0
    input: float = 0.0
    weight: float = 0.0
    blocks: float = 1.0  # that share these seconds
    # Tensor parallel, of one micro-batch. What follows needs their results.
    tensor_forward: List[Calls] = field(default_factory=list)
    tensor_backward: List[Calls] = field(default_factory=list)
    # Context parallel, of one micro-batch: collectives that attention waits for, or a ring's
    # messages to the next rank, which are passed on while attention computes for so many seconds.
    context_forward: List[Calls] = field(default_factory=list)
    context_backward: List[Calls] = field(default_factory=list)
    attention_forward: float = 0.0
    attention_backward: float = 0.0
    # Expert parallel, of one micro-batch: experts wait for their rows, what follows for theirs.
    expert_forward: List[Calls] = field(default_factory=list)
    expert_backward: List[Calls] = field(default_factory=list)
    tensor_sums: float = 0.0  # bytes that a rank sends once a step for gradients that ranks share
    # Sharded parameters (fsdp, or ZeRO stage 3), of one micro-batch: while a block computes, the
    # next unit is gathered, or the gradients of the one before are reduced.
    gather_forward: Calls = Calls()
    gather_backward: Calls = Calls()
    scatter: Calls = Calls()
    # Where parameters are whole: gradients in buckets. ZeRO stage 2 reduces those of every
    # micro-batch.
    reduce: Calls = Calls()
    reduces_each: bool = False
    gather_updated: Calls = Calls()  # of ZeRO stages 1 and 2, after the optimizer's step
    average_copies: Calls = Calls()  # along dp in a mesh with fsdp: the copies of a shard
    average_shared: Calls = Calls()  # then along ep: gradients of all but the experts
    optimizer: float = 0.0  # seconds


@dataclass
class PlanLoad:
    stages: List[StageLoad]  # in the order of forward
    state_axis: str  # shards or reduces
    has_shards: bool  # of parameters
    message_bytes: float = 0.0  # of one micro-batch, between neighbouring stages

    def calls_of(self, stage: StageLoad, m: int) -> Iterator[Tuple[str, Calls, float]]:
        """The calls of a stage in one step of m micro-batches: axis, calls, how many times."""
        for axis, calls in (
            ("tp", stage.tensor_forward),
            ("tp", stage.tensor_backward),
            ("cp", stage.context_forward),
            ("cp", stage.context_backward),
            ("ep", stage.expert_forward),
            ("ep", stage.expert_backward),
        ):
            for each in calls:
                yield axis, each, m
        for each in (stage.gather_forward, stage.gather_backward, stage.scatter):
            yield self.state_axis, each, m
        yield self.state_axis, stage.reduce, m if stage.reduces_each else 1
        yield self.state_axis, stage.gather_updated, 1
        yield "dp", stage.average_copies, 1
        yield "ep", stage.average_shared, 1


class MeasuredStage(NamedTuple):
    """Seconds that a rank computed for one micro-batch of a stage, without what it waited for, and
    its share of the update; measured in a run. `weight` is the part of backward that the weights'
    gradients take; 0: it was not apart."""

    forward: float
    backward: float
    weight: float
    optimizer: float


def take_measured(measured: Sequence[MeasuredStage], load: PlanLoad) -> None:
    """Takes measured times in place of the formulas'. A backward that was measured whole is divided
    as by the formulas."""
    require(
        len(measured) == len(load.stages),
        f"the trace has {len(measured)} stages, but the plan has {len(load.stages)}: name the "
        "mesh and the schedule of that run",
    )
    for seen, each in zip(measured, load.stages):
        share = each.weight / (each.input + each.weight)
        each.forward = seen.forward
        each.weight = seen.weight if seen.weight > 0 else share * seen.backward
        each.input = seen.backward - each.weight
        each.optimizer = seen.optimizer


# The loads of a plan.


def load_of(model: Model, plan: Plan, machine: Machine) -> PlanLoad:
    """Gradients are reduced in buckets of 25 MB. The head of Ringside's own models computes its
    gradients in forward; those of published models take a third of the head's time in forward."""
    with values_only():
        return _load_of(model, plan, machine)


def _load_of(model: Model, plan: Plan, machine: Machine) -> PlanLoad:
    load = PlanLoad([], plan.state_axis, plan.shards_parameters)
    if plan.mesh.size("pp") > 1:
        load.message_bytes = communication.boundary_bytes(model, plan)
    stages, t = len(placement_of(plan)), symbols.tensor_ranks(plan)
    for nth in range(stages):
        part = PipelinePart(
            float(len(layers_of_stage(model.layers, stages, nth))), nth == 0, nth + 1 == stages
        )
        each = StageLoad()
        load.stages.append(each)
        add_computing(model, plan, machine, part, each)
        if plan.mesh.size("tp") > 1:
            add_tensor_calls(model, plan, part, each)
            each.tensor_sums = communication.tensor_bytes_of_sums(model, plan, part)
        if plan.mesh.size("cp") > 1:
            add_context_calls(model, plan, part, each)
        if plan.mesh.size("ep") > 1:
            add_expert_calls(model, plan, part, each)
        add_data_calls(model, plan, part, each)
        held = parameters.stage_parameters(model, t, part)
        each.weight += work.memory_seconds(work.accumulation_traffic(held, plan), machine)
        each.optimizer = work.optimizer_seconds(
            work.optimizer_traffic(held, plan.types, state.shards_of(plan).optimizer), machine
        )
    return load


def add_computing(
    model: Model, plan: Plan, machine: Machine, part: PipelinePart, load: StageLoad
) -> None:
    """Products at the reached share of the peak, other ops at the memory's bandwidth, and the fixed
    cost of each kernel."""
    traffic = symbols.micro_batch_tokens(plan) * work.block_forward_traffic(model, plan)
    forward = work.product_seconds(
        work.busiest_forward_flops(model, plan), work.block_width(model, plan), plan, machine
    )
    forward += work.memory_seconds(traffic, machine)
    forward += work.kernel_seconds(work.block_forward_kernels(model), machine)
    whole = work.block_seconds(model, plan, machine)
    load.blocks = max(1.0, part.blocks)
    # The gradients of the weights are half of backward, without what is computed again.
    load.forward = load.weight = part.blocks * forward
    load.input = part.blocks * (whole - 2 * forward)
    if not part.has_head or model.vocabulary == 0:
        return
    head = work.head_seconds(model, plan, machine)
    if model.own:
        load.forward += head
    else:
        load.forward, load.input, load.weight = (
            each + head / 3 for each in (load.forward, load.input, load.weight)
        )


def add_tensor_calls(model: Model, plan: Plan, part: PipelinePart, load: StageLoad) -> None:
    """As tensor_calls_of_block(), forward and backward apart."""
    tokens = symbols.micro_batch_tokens(plan)
    stream = tokens * model.d_model * plan.types.activations
    in_block = stream * communication.tensor_rows(model)
    calls = part.blocks * communication.tensor_calls_of_block(model, plan)
    halves = part.blocks * (1 if model.heads == 0 else 2)
    if plan.sequence_parallel:
        # An all-gather and a reduce-scatter of the same buffer take the same time.
        load.tensor_forward.append(Calls("all_gather", 2 * halves, in_block))
        load.tensor_backward.append(Calls("all_gather", calls - 2 * halves, in_block))
    else:
        load.tensor_forward.append(Calls("all_reduce", halves, in_block))
        load.tensor_backward.append(Calls("all_reduce", calls - halves, in_block))
    if model.vocabulary == 0:
        return
    if part.has_embedding:
        load.tensor_forward.append(Calls("all_reduce", 1, stream))
    if part.has_head:
        load.tensor_forward.append(Calls("all_reduce", 3, 4 * tokens))  # an fp32 number a token
        load.tensor_backward.append(Calls("all_reduce", 1, stream))


def add_context_calls(model: Model, plan: Plan, part: PipelinePart, load: StageLoad) -> None:
    """As context_bytes_of_block(), forward and backward apart. Attention takes its share of a
    block's FLOPs, twice as long in backward."""
    c, e, blocks = plan.mesh.size("cp"), plan.types.activations, part.blocks
    t, tokens = symbols.tensor_ranks(plan), symbols.micro_batch_tokens(plan)
    kv = float(max(model.kv_width, model.head_size * plan.mesh.size("tp")))
    own = 2 * tokens * kv / t
    if plan.exchange == "all_gather":
        load.context_forward = [Calls("all_gather", blocks, c * e * own)]
        load.context_backward = [Calls("reduce_scatter", blocks, c * e * own)]
    elif plan.exchange == "ring":
        load.context_forward = [Calls("point_to_point", blocks * (c - 1), e * own)]
        load.context_backward = [
            Calls("point_to_point", blocks * (c - 1), e * own),
            Calls("point_to_point", blocks * c, max(4.0, e) * own),
        ]
    else:
        each = Calls("all_to_all", 4 * blocks, e * tokens * (2 * model.q_width + 2 * kv) / t / 4)
        load.context_forward, load.context_backward = [each], [each]
    load.context_backward = load.context_backward + plan.times_again * load.context_forward
    share = work.attention_flops(model, plan) / work.block_forward_flops(model, plan)
    load.attention_forward = share * load.forward
    load.attention_backward = share * (load.input + load.weight)


def add_expert_calls(model: Model, plan: Plan, part: PipelinePart, load: StageLoad) -> None:
    """As expert_bytes_of_block(): the counts of the rows, the rows, their outputs; and the
    gradients of both. The busiest rank receives and returns more rows than the mean."""
    assert model.experts
    rows = (
        symbols.micro_batch_tokens(plan) * model.per_token * model.d_model * plan.types.activations
    )
    blocks = symbols.mean_of_blocks(model, part.blocks)  # with experts
    there_and_back = Calls("all_to_all", 2 * blocks, plan.imbalance * rows)
    load.expert_forward = [Calls("all_to_all", blocks, 8.0 * model.experts.routed), there_and_back]
    load.expert_backward = [there_and_back] + plan.times_again * load.expert_forward
    shards = plan.state_ranks if plan.stage > 0 else 1
    shared = communication.parameters_beside_experts(model, symbols.tensor_ranks(plan), part)
    load.average_shared = Calls("all_reduce", 1, plan.types.gradients * shared / shards)


def add_data_calls(model: Model, plan: Plan, part: PipelinePart, load: StageLoad) -> None:
    t, types = symbols.tensor_ranks(plan), plan.types
    whole = parameters.stage_parameters(model, t, part)
    if plan.shards_parameters:
        units = communication.sharded_units(model, t, part)
        again = units.parameters_again
        load.gather_forward = Calls(
            "all_gather", units.count, types.parameters * whole / units.count, units.hidden
        )
        if units.again > 0:
            load.gather_backward = Calls(
                "all_gather",
                units.again,
                types.parameters * again / units.again,
                units.hidden_again,
            )
        load.scatter = Calls(
            "reduce_scatter", units.count, types.gradients * whole / units.count, units.hidden
        )
    if plan.state_ranks > 1 and plan.stage < 3:
        gradients = types.gradients * whole
        buckets = float(math.ceil(gradients / plan.bucket_bytes))
        load.reduce = Calls(
            "all_reduce" if plan.stage == 0 else "reduce_scatter", buckets, gradients / buckets
        )
        load.reduces_each = plan.stage == 2
        if plan.stage > 0:
            load.gather_updated = Calls("all_gather", buckets, types.parameters * whole / buckets)
    if plan.copies > 1:
        load.average_copies = Calls("all_reduce", 1, types.gradients * whole / plan.state_ranks)
