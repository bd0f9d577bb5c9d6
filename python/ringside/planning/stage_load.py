"""What one stage of a plan computes and sends, on one rank. The longest path is made of these
durations.

A stage is one of the schedule: a rank of the interleaved schedule holds `chunks` of them. The
formulas are those of the account.
"""

import math
from dataclasses import dataclass
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

from ringside.planning.formulas import communication, parameters, state, symbols, work
from ringside.planning.json_fields import require
from ringside.planning.machine import Machine
from ringside.planning.model import Model
from ringside.planning.pipeline import REDUCE
from ringside.planning.plan import PipelinePart, Plan, placement_of
from ringside.planning.quantity import values_only
from ringside.planning.schedules import layers_of_stage

UPDATE, SUMS = "update", "sums"  # further moments of a step: Calls.when


class Calls(NamedTuple):
    """`count` collectives along an axis, each of a buffer of `size` bytes: the whole buffer, on all
    ranks together; or messages ("point_to_point") to the next rank or stage. `when` is

        F, I, W           in these computations of a micro-batch: what follows needs the results; B
                          makes the calls of I and W
        SEND_F, SEND_B    after F, and after B or I, to the neighbouring stage
        REDUCE_GRAD       behind the backward of the last micro-batch; of ZeRO stage 2, of each
        update            after the optimizer's step
        sums              once a step, in no time

    So many as `hidden` may run while the device computes, each behind `behind` seconds of it; None
    stands for a block."""

    axis: str
    when: str
    collective: str
    count: float
    size: float
    hidden: float = 0.0
    behind: Optional[float] = None

    def sent(self, ranks: int) -> float:
        """Bytes that one rank sends in these calls: a ring sends a buffer twice to sum it on all
        ranks, and once to gather or scatter it."""
        if self.collective == "point_to_point":
            return self.count * self.size
        times = 2 if self.collective == "all_reduce" else 1
        return times * self.count * self.size * (ranks - 1) / ranks

    def times(self, plan: Plan) -> int:
        """How often a rank makes these calls in one step."""
        reduces_once = self.when == REDUCE and plan.stage != 2
        return 1 if reduces_once or self.when in (UPDATE, SUMS) else plan.micro_batches

    def exposed(self, seconds: float, block: float, overlap: float) -> float:
        """What computing does not hide of these calls, if each takes `seconds` and a block computes
        for `block` seconds."""
        behind = block if self.behind is None else self.behind
        return self.count * seconds - self.hidden * min(overlap * seconds, behind)


@dataclass
class StageLoad:
    """`computing` are the seconds of F, I and W for one micro-batch, shared by so many `blocks`;
    `optimizer` those of the update."""

    computing: Dict[str, float]
    blocks: float
    optimizer: float
    calls: List[Calls]


@dataclass
class PlanLoad:
    """The stages are in the order of forward; `message_bytes` are those of one micro-batch between
    neighbours."""

    stages: List[StageLoad]
    message_bytes: float


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
        share = each.computing["W"] / (each.computing["I"] + each.computing["W"])
        weight = seen.weight if seen.weight > 0 else share * seen.backward
        each.computing = {"F": seen.forward, "I": seen.backward - weight, "W": weight}
        each.optimizer = seen.optimizer


# The loads of a plan.


@values_only()
def load_of(model: Model, plan: Plan, machine: Machine) -> PlanLoad:
    """Gradients are reduced in buckets of 25 MB. The head of Ringside's own models computes its
    gradients in forward; those of published models take a third of the head's time in forward."""
    rank_of, message = placement_of(plan), 0.0
    if plan.mesh.size("pp") > 1:
        message = float(communication.boundary_bytes(model, plan))
    stages: List[StageLoad] = []
    for nth, rank in enumerate(rank_of):
        blocks = float(len(layers_of_stage(model.layers, len(rank_of), nth)))
        part = PipelinePart(blocks, nth == 0, nth + 1 == len(rank_of))
        stage = stage_load(model, plan, machine, part)
        stages.append(stage)
        for send, other in (("SEND_F", nth + 1), ("SEND_B", nth - 1)):
            if 0 <= other < len(rank_of) and rank_of[other] != rank:
                stage.calls.append(Calls("pp", send, "point_to_point", 1, message))
    return PlanLoad(stages, message)


def stage_load(model: Model, plan: Plan, machine: Machine, part: PipelinePart) -> StageLoad:
    """Without the messages to neighbouring stages."""
    held = parameters.stage_parameters(model, symbols.tensor_ranks(plan), part)
    computing = computing_seconds(model, plan, machine, part)
    calls: List[Calls] = []
    if plan.mesh.size("tp") > 1:
        calls += tensor_calls(model, plan, part)
    if plan.mesh.size("cp") > 1 and part.blocks > 0:
        calls += context_calls(model, plan, part, computing)
    if plan.mesh.size("ep") > 1:
        calls += expert_calls(model, plan, part)
    calls += data_calls(model, plan, part, held)
    computing["W"] += work.memory_seconds(work.accumulation_traffic(held, plan), machine)
    traffic = work.optimizer_traffic(held, plan.types, state.shards_of(plan).optimizer)
    return StageLoad(
        computing,
        max(1.0, part.blocks),
        work.optimizer_seconds(traffic, machine),
        [each for each in calls if each.count > 0],
    )


def computing_seconds(
    model: Model, plan: Plan, machine: Machine, part: PipelinePart
) -> Dict[str, float]:
    """Products at the reached share of the peak, other ops at the memory's bandwidth, and the fixed
    cost of each kernel. The gradients of the weights are half of backward, without what is computed
    again."""
    traffic = symbols.micro_batch_tokens(plan) * work.block_forward_traffic(model, plan)
    forward = work.product_seconds(
        work.busiest_forward_flops(model, plan), work.block_width(model, plan), plan, machine
    )
    forward += work.memory_seconds(traffic, machine)
    forward += work.kernel_seconds(work.block_forward_kernels(model), machine)
    whole = work.block_seconds(model, plan, machine)
    seconds = {"F": forward, "I": whole - 2 * forward, "W": forward}
    seconds = {kind: part.blocks * each for kind, each in seconds.items()}
    if part.has_head and model.vocabulary > 0:
        head = work.head_seconds(model, plan, machine)
        for kind in "F" if model.own else "FIW":
            seconds[kind] += head if model.own else head / 3
    return seconds


def tensor_calls(model: Model, plan: Plan, part: PipelinePart) -> Iterator[Calls]:
    """As tensor_calls_of_block(), forward and backward apart. With sequence parallel, an all-gather
    and a reduce-scatter of the same buffer take the same time."""
    tokens = symbols.micro_batch_tokens(plan)
    stream = tokens * model.d_model * plan.types.activations
    in_block = stream * communication.tensor_rows(model)
    calls = part.blocks * communication.tensor_calls_of_block(model, plan)
    forward = part.blocks * (1 if model.heads == 0 else 2)
    collective = "all_reduce"
    if plan.sequence_parallel:
        collective, forward = "all_gather", 2 * forward
    has_head = part.has_head and model.vocabulary > 0
    yield Calls("tp", "F", collective, forward, in_block)
    if part.has_embedding and model.vocabulary > 0:
        yield Calls("tp", "F", "all_reduce", 1, stream)
    if has_head:
        yield Calls("tp", "F", "all_reduce", 3, 4 * tokens)  # an fp32 number a token
    yield Calls("tp", "I", collective, calls - forward, in_block)
    if has_head:
        yield Calls("tp", "I", "all_reduce", 1, stream)
    sums = communication.tensor_bytes_of_sums(model, plan, part)
    if sums > 0:
        yield Calls("tp", SUMS, "point_to_point", 1, sums)


def context_calls(
    model: Model, plan: Plan, part: PipelinePart, computing: Dict[str, float]
) -> Iterator[Calls]:
    """As context_bytes_of_block(), forward and backward apart; a reduce-scatter takes the time of
    an all-gather. A ring passes keys on while attention computes, which takes its share of a
    block's FLOPs, twice as long in backward."""
    c, e, blocks = plan.mesh.size("cp"), plan.types.activations, part.blocks
    t, tokens = symbols.tensor_ranks(plan), symbols.micro_batch_tokens(plan)
    kv = float(max(model.kv_width, model.head_size * plan.mesh.size("tp")))
    own, again = 2 * tokens * kv / t, 1 + plan.times_again
    if plan.exchange == "all_gather":
        yield Calls("cp", "F", "all_gather", blocks, c * e * own)
        yield Calls("cp", "I", "all_gather", again * blocks, c * e * own)
    elif plan.exchange == "ulysses":
        size = e * tokens * (2 * model.q_width + 2 * kv) / t / 4
        yield Calls("cp", "F", "all_to_all", 4 * blocks, size)
        yield Calls("cp", "I", "all_to_all", again * 4 * blocks, size)
    else:
        attention = work.attention_flops(model, plan) / work.block_forward_flops(model, plan)
        keys, gradients = blocks * (c - 1), blocks * c
        backward = again * keys + gradients  # of different lengths: with the mean, as long
        mean = (again * keys * e + gradients * max(4.0, e)) * own / backward
        for kind, count, size, seconds in (
            ("F", keys, e * own, computing["F"]),
            ("I", backward, mean, computing["I"] + computing["W"]),
        ):
            behind = attention * seconds / count
            yield Calls("cp", kind, "point_to_point", count, size, count, behind)


def expert_calls(model: Model, plan: Plan, part: PipelinePart) -> Iterator[Calls]:
    """As expert_bytes_of_block(): the counts of the rows, the rows, their outputs; and the
    gradients of both. The busiest rank receives and returns more rows than the mean."""
    assert model.experts
    tokens, again = symbols.micro_batch_tokens(plan), plan.times_again
    rows = tokens * model.per_token * model.d_model * plan.types.activations
    blocks = symbols.mean_of_blocks(model, part.blocks)  # with experts
    for kind, counts, ways in (("F", 1, 2), ("I", again, 2 + 2 * again)):
        yield Calls("ep", kind, "all_to_all", counts * blocks, 8.0 * model.experts.routed)
        yield Calls("ep", kind, "all_to_all", ways * blocks, plan.imbalance * rows)


def data_calls(model: Model, plan: Plan, part: PipelinePart, held: float) -> Iterator[Calls]:
    """Of the state, and of gradients that other ranks have, too: the copies of a shard along dp,
    and all but the experts along ep."""
    t, types, axis = symbols.tensor_ranks(plan), plan.types, plan.state_axis
    gradients = types.gradients * held
    if plan.shards_parameters:  # while a block computes, the next unit is on its way
        units = communication.sharded_units(model, t, part)
        size = types.parameters * held / units.count
        yield Calls(axis, "F", "all_gather", units.count, size, units.hidden)
        if units.again > 0:
            size = types.parameters * units.parameters_again / units.again
            yield Calls(axis, "I", "all_gather", units.again, size, units.hidden_again)
        yield Calls(axis, "W", "reduce_scatter", units.count, gradients / units.count, units.hidden)
    if plan.state_ranks > 1 and plan.stage < 3:
        buckets = float(math.ceil(gradients / plan.bucket_bytes))
        collective = "all_reduce" if plan.stage == 0 else "reduce_scatter"
        yield Calls(axis, REDUCE, collective, buckets, gradients / buckets)
        if plan.stage > 0:
            yield Calls(axis, UPDATE, "all_gather", buckets, types.parameters * held / buckets)
    if plan.copies > 1:
        yield Calls("dp", UPDATE, "all_reduce", 1, gradients / plan.state_ranks)
    if plan.mesh.size("ep") > 1:
        shared = communication.parameters_beside_experts(model, t, part)
        shards = plan.state_ranks if plan.stage > 0 else 1
        yield Calls("ep", UPDATE, "all_reduce", 1, types.gradients * shared / shards)
