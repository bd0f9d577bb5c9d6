"""Bytes that a rank sends for each parallel axis, and how long they take.

Symbols: n ranks of the axis (t, c, p of tp, cp, pp), D bytes of a buffer, T tokens of a
micro-batch, d width, e bytes of a number, W bytes per second of the link, eta the share of W that
is reached.
"""

from typing import NamedTuple

from ringside.planning.formulas.parameters import embedding, stage_parameters, whole_block
from ringside.planning.formulas.state import shards_of
from ringside.planning.formulas.symbols import mean_of_blocks, micro_batch_tokens, tensor_ranks
from ringside.planning.machine import Level
from ringside.planning.model import Model
from ringside.planning.plan import PipelinePart, Plan
from ringside.planning.quantity import Term, Unit, constant, named, term

KORTHIKANTI = "Korthikanti et al. 2022, section 4.2"
MEGATRON = "Shoeybi et al. 2019 (Megatron-LM), section 3"


def ring_all_reduce_bytes(n: float, buffer: float) -> Term:
    """Sent by one rank, of a buffer that is D bytes long when whole."""
    return term(
        "D_sent",
        "sent by a rank in a ring all-reduce",
        2 * buffer * (n - 1) / n,
        Unit.BYTES,
        "Patarasuk and Yuan 2009, section 3",
    )


def ring_all_gather_bytes(n: float, buffer: float) -> Term:
    """The same of an all-gather or a reduce-scatter."""
    return term(
        "D_sent",
        "sent by a rank in a ring all-gather or reduce-scatter",
        buffer * (n - 1) / n,
        Unit.BYTES,
        "Thakur et al. 2005, section 4",
    )


def _residual_stream(model: Model, plan: Plan) -> float:
    """Bytes of the activations of one micro-batch, between two blocks."""
    return micro_batch_tokens(plan) * named("d", model.d_model) * named("e", plan.types.activations)


def tensor_calls_of_block(model: Model, plan: Plan) -> Term:
    """Without sequence parallel a call is an all-reduce; with it, an all-gather or a
    reduce-scatter.

    A block has two halves (attention, feed-forward), each with a column-parallel and a row-parallel
    product. For each half:

                               all-reduce                  with sequence parallel
        forward                g: after the row product    all-gather before, reduce-scatter after
        backward               f: of dx                    the same two, and the input gathered
                                                           again for dW
        forward again (full)   g                           all-gather, reduce-scatter

    An input that Ringside keeps whole is not gathered again."""
    halves, again = named("halves", 1 if model.heads == 0 else 2), plan.times_again
    calls = 5 + 2 * again - int(model.own) if plan.sequence_parallel else 2 + again
    return term(
        "calls",
        "tensor-parallel calls of a block, one micro-batch",
        calls * halves,
        source=KORTHIKANTI,
    )


def tensor_rows(model: Model) -> float:
    """Rows of a token in such a call, the mean: 1, and with experts K in the feed-forward half."""
    if not model.experts:
        return constant(1)
    rows = float(mean_of_blocks(model, model.per_token, 1.0))
    return named("(1 + K) / 2", (1 + rows) / 2)


def tensor_bytes_of_block(model: Model, plan: Plan) -> Term:
    t, calls = tensor_ranks(plan), tensor_calls_of_block(model, plan)
    stream = _residual_stream(model, plan) * tensor_rows(model)
    return term(
        "D_tp",
        "sent for a block by a tensor-parallel rank, one micro-batch",
        calls * stream * (t - 1) / t
        if plan.sequence_parallel
        else 2 * calls * stream * (t - 1) / t,
        Unit.BYTES,
        KORTHIKANTI,
    )


def tensor_bytes_of_edge(model: Model, plan: Plan) -> Term:
    """The same for the embedding (its output) and the head (the gradient of its input)."""
    t = tensor_ranks(plan)
    return term(
        "D_edge",
        "sent for the embedding's output, and for the head's dx",
        2 * _residual_stream(model, plan) * (t - 1) / t,
        Unit.BYTES,
        MEGATRON,
    )


def tensor_bytes_of_cross_entropy(plan: Plan) -> Term:
    t = tensor_ranks(plan)
    return term(
        "D_loss",
        "sent for the cross-entropy: three fp32 numbers a token",
        24 * micro_batch_tokens(plan) * (t - 1) / t,
        Unit.BYTES,
        MEGATRON,
    )


def tensor_bytes_of_sums(model: Model, plan: Plan, part: PipelinePart) -> Term:
    """Once a step along tp: gradients of the norms, of which each rank sees its own tokens under
    sequence parallel, and those of key and value heads that ranks share. ZeRO adds up the gradients
    of the shards that it leaves on a rank."""
    t, d, blocks = tensor_ranks(plan), named("d", model.d_model), named("L_stage", part.blocks)
    gradient, n = named("e_g", plan.types.gradients), named("N", shards_of(plan).optimizer)
    sent = constant(0)
    if plan.sequence_parallel and model.kind == "llama":
        norms = 2 * blocks + 1 if part.has_head else 2 * blocks
        sent = ring_all_reduce_bytes(t, gradient * d * norms / n)
    if 0 < model.kv_heads < plan.mesh.size("tp"):
        share = named("t / a_kv", plan.mesh.size("tp") / model.kv_heads)
        sent = sent + ring_all_reduce_bytes(
            share, gradient * 2 * d * named("d_head", model.head_size) * blocks / n
        )
    return term(
        "D_sums",
        "sent once a step for gradients of norms and of shared heads",
        sent,
        Unit.BYTES,
        KORTHIKANTI,
    )


def pipeline_bytes_of_sums(model: Model, plan: Plan, part: PipelinePart) -> Term:
    """Once a step along pp: the gradient of a tied matrix that the first and the last stage
    have."""
    sent = constant(0)
    if model.tied_head and part.has_embedding != part.has_head:
        sent = ring_all_reduce_bytes(
            constant(2),
            named("e_g", plan.types.gradients)
            * embedding(model)
            / tensor_ranks(plan)
            / named("N", shards_of(plan).optimizer),
        )
    return term(
        "D_tied",
        "sent once a step for the gradient of the tied matrix",
        sent,
        Unit.BYTES,
        "Shoeybi et al. 2019 (Megatron-LM)",
    )


def context_calls_of_block(plan: Plan) -> Term:
    """Forward, and backward, where keys travel again in a ring and their gradients with them.

                forward                            backward
    all_gather  an all-gather                      a reduce-scatter
    ring        c - 1 exchanges                    c - 1, and c of gradients
    ulysses     all-to-all of q, k, v and y        the same four
    """
    c, again, forward, backward = (
        named("c", plan.mesh.size("cp")),
        plan.times_again,
        constant(1),
        constant(1),
    )
    if plan.exchange == "ring":
        forward, backward = c - 1, 2 * c - 1
    if plan.exchange == "ulysses":
        forward = backward = constant(4)
    return term(
        "calls",
        "context-parallel calls of a block, one micro-batch",
        (1 + again) * forward + backward,
        source="parallel/context/attention.hpp",
    )


def context_bytes_of_block(model: Model, plan: Plan) -> Term:
    """Gradients in a ring are of the compute dtype, at least fp32."""
    c, t, tokens = named("c", plan.mesh.size("cp")), tensor_ranks(plan), micro_batch_tokens(plan)
    e = named("e", plan.types.activations)
    e_g = named("e_g", max(4.0, plan.types.activations))
    q = named("q", model.q_width)
    kv = named("kv", max(model.kv_width, model.head_size * plan.mesh.size("tp")))
    own = 2 * tokens * kv / t  # numbers of this rank's keys and values
    forward = backward = (c - 1) * e * own
    if plan.exchange == "ring":
        backward = (c - 1) * e * own + c * e_g * own
    if plan.exchange == "ulysses":
        forward = backward = (c - 1) / c * e * tokens * (2 * q + 2 * kv) / t
    return term(
        "D_cp",
        "sent for a block by a context-parallel rank, one micro-batch",
        (1 + plan.times_again) * forward + backward,
        Unit.BYTES,
        "parallel/context/attention.hpp",
    )


def expert_calls_of_block(model: Model, plan: Plan) -> Term:
    """Forward, and backward: K rows of d numbers for each token go to the experts, and as many come
    back. Before them, every rank tells every other how many rows it has for each of its experts."""
    calls = 5 + constant(3 * plan.times_again)
    return term(
        "calls",
        "all-to-alls of a block, one micro-batch: counts, rows and outputs; gradients",
        mean_of_blocks(model, calls),
        source="parallel/experts/dispatch.hpp",
    )


def expert_bytes_of_block(model: Model, plan: Plan) -> Term:
    """With equal load of the experts, or Plan.imbalance times as much."""
    assert model.experts is not None
    n, tokens = named("n", plan.mesh.size("ep")), micro_batch_tokens(plan)
    e, d = named("e", plan.types.activations), named("d", model.d_model)
    each = (n - 1) / n * e * tokens * named("K", model.per_token) * d
    counts = (n - 1) / n * 8 * named("E", model.experts.routed)
    if plan.busiest_rows != 1:
        each = named("imbalance", plan.imbalance) * each
    again = plan.times_again
    return term(
        "D_ep",
        "sent for a block by the busiest expert-parallel rank, one micro-batch",
        mean_of_blocks(model, (4 + 2 * again) * each + (1 + again) * counts),
        Unit.BYTES,
        "parallel/experts/dispatch.hpp",
    )


def parameters_beside_experts(model: Model, t: float, part: PipelinePart) -> float:
    """What is averaged along ep: all but the experts."""
    assert model.experts is not None
    d, f = named("d", model.d_model), named("f", model.d_ff)
    here = named("E / n", model.experts.here)
    experts = named("L_stage", part.blocks) * 3 * d * f * here / t
    return stage_parameters(model, t, part) - mean_of_blocks(model, experts)


class ShardedUnits(NamedTuple):
    """Of a part of the pipeline: its units, and those that are gathered again for backward; and how
    many calls of each run behind a block."""

    count: float
    again: float
    parameters_again: float  # gathered again
    hidden: float
    hidden_again: float


def calls_behind_blocks(units: float, blocks: float, has_head: bool) -> float:
    """Of `units` gathers or reductions of a micro-batch, those that run behind the computing of one
    of `blocks` blocks: the next unit is gathered, or the one before is reduced. The first gather
    and the last reduction run behind nothing, and those beside the embedding behind its few
    reads."""
    return max(0.0, min(units, blocks + 1 if has_head else blocks) - 1)


def sharded_units(model: Model, t: float, part: PipelinePart) -> ShardedUnits:
    """The embedding's backward reads no parameters, and the head's gradients are computed in
    forward; a matrix that both share is gathered again."""
    has_edges = model.vocabulary > 0
    tied = has_edges and model.tied_head and part.has_head
    edges = 0 if not has_edges else 1 if tied else part.has_embedding + part.has_head
    count, again = part.blocks + edges, part.blocks + (edges if tied else 0)
    gathered = (
        stage_parameters(model, t, part)
        if tied
        else named("L_stage", part.blocks) * whole_block(model, t)
    )
    has_head = has_edges and part.has_head
    return ShardedUnits(
        count,
        again,
        gathered,
        calls_behind_blocks(count, part.blocks, has_head),
        calls_behind_blocks(again, part.blocks, has_head),
    )


def boundary_bytes(model: Model, plan: Plan) -> Term:
    stream = _residual_stream(model, plan)
    return term(
        "D_pp",
        "one message to a neighbouring stage",
        stream / tensor_ranks(plan) if plan.sequence_parallel else stream,
        Unit.BYTES,
        "Narayanan et al. 2021, section 4.1",
    )


def link_seconds(messages: float, sent: float, level: Level) -> Term:
    """How long a rank's link carries them: latencies of `messages` one after the other, and
    bytes."""
    seconds = sent / (named("W", level.bytes_per_second) * named("eta", level.efficiency))
    if level.oversubscription > 1:
        seconds = named("o", level.oversubscription) * seconds
    return term(
        "t_link",
        f"time on {level.name}",
        messages * named("alpha", level.latency) + seconds,
        Unit.SECONDS,
        "Hockney 1994: latency and bandwidth",
    )
