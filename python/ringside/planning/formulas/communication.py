"""Bytes that a rank sends for each parallel axis, and how long they take.

Symbols: symbols.py; n ranks of an axis, D bytes of a buffer, W bytes per second of the link, eta
the share of W that is reached, alpha the latency of a message.
"""

from typing import NamedTuple

from ringside.planning.formulas.parameters import embedding, stage_parameters, whole_block
from ringside.planning.formulas.state import shards_of
from ringside.planning.formulas.symbols import Symbols, mean_of_blocks, tensor_ranks
from ringside.planning.machine import Level
from ringside.planning.model import Model
from ringside.planning.plan import PipelinePart, Plan
from ringside.planning.quantity import Term, Unit, constant, formula, named, term

KORTHIKANTI = "Korthikanti et al. 2022, section 4.2"
MEGATRON = "Shoeybi et al. 2019 (Megatron-LM), section 3"
TIED = "Shoeybi et al. 2019 (Megatron-LM)"
NARAYANAN = "Narayanan et al. 2021, section 4.1"
PATARASUK = "Patarasuk and Yuan 2009, section 3"
THAKUR = "Thakur et al. 2005, section 4"
HOCKNEY = "Hockney 1994: latency and bandwidth"
CONTEXT = "parallel/context/attention.hpp"
EXPERTS = "parallel/experts/dispatch.hpp"


@formula("D_sent", "sent by a rank in a ring all-reduce", Unit.BYTES, PATARASUK)
def ring_all_reduce_bytes(n: float, buffer: float) -> float:
    """Sent by one rank, of a buffer that is D bytes long when whole."""
    return 2 * buffer * (n - 1) / n


@formula("D_sent", "sent by a rank in a ring all-gather or reduce-scatter", Unit.BYTES, THAKUR)
def ring_all_gather_bytes(n: float, buffer: float) -> float:
    """The same of an all-gather or a reduce-scatter."""
    return buffer * (n - 1) / n


def _residual_stream(model: Model, plan: Plan) -> float:
    """Bytes of the activations of one micro-batch, between two blocks."""
    x = Symbols(model, plan)
    return x.T * x.d * x.e


@formula("calls", "tensor-parallel calls of a block, one micro-batch", source=KORTHIKANTI)
def tensor_calls_of_block(model: Model, plan: Plan) -> float:
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
    return (5 + 2 * again - int(model.own) if plan.sequence_parallel else 2 + again) * halves


def tensor_rows(model: Model) -> float:
    """Rows of a token in such a call, the mean: 1, and with experts K in the feed-forward half."""
    if not model.experts:
        return constant(1)
    rows = float(mean_of_blocks(model, model.per_token, 1.0))
    return named("(1 + K) / 2", (1 + rows) / 2)


@formula(
    "D_tp", "sent for a block by a tensor-parallel rank, one micro-batch", Unit.BYTES, KORTHIKANTI
)
def tensor_bytes_of_block(model: Model, plan: Plan) -> float:
    t, calls = tensor_ranks(plan), tensor_calls_of_block(model, plan)
    stream = _residual_stream(model, plan) * tensor_rows(model)
    return (calls if plan.sequence_parallel else 2 * calls) * stream * (t - 1) / t


@formula("D_edge", "sent for the embedding's output, and for the head's dx", Unit.BYTES, MEGATRON)
def tensor_bytes_of_edge(model: Model, plan: Plan) -> float:
    """The same for the embedding (its output) and the head (the gradient of its input)."""
    t = tensor_ranks(plan)
    return 2 * _residual_stream(model, plan) * (t - 1) / t


@formula("D_loss", "sent for the cross-entropy: three fp32 numbers a token", Unit.BYTES, MEGATRON)
def tensor_bytes_of_cross_entropy(plan: Plan) -> float:
    x = Symbols(None, plan)
    return 24 * x.T * (x.t - 1) / x.t


@formula(
    "D_sums", "sent once a step for gradients of norms and of shared heads", Unit.BYTES, KORTHIKANTI
)
def tensor_bytes_of_sums(model: Model, plan: Plan, part: PipelinePart) -> float:
    """Once a step along tp: gradients of the norms, of which each rank sees its own tokens under
    sequence parallel, and those of key and value heads that ranks share. ZeRO adds up the gradients
    of the shards that it leaves on a rank."""
    x, blocks = Symbols(model, plan), named("L_stage", part.blocks)
    sent, n = constant(0), named("N", shards_of(plan).optimizer)
    if plan.sequence_parallel and model.kind == "llama":
        norms = 2 * blocks + 1 if part.has_head else 2 * blocks
        sent = ring_all_reduce_bytes(x.t, x.e_g * x.d * norms / n)
    if 0 < model.kv_heads < plan.mesh.size("tp"):
        share = named("t / a_kv", plan.mesh.size("tp") / model.kv_heads)
        heads = x.e_g * 2 * x.d * x.d_head * blocks / n
        sent = sent + ring_all_reduce_bytes(share, heads)
    return sent


@formula("D_tied", "sent once a step for the gradient of the tied matrix", Unit.BYTES, TIED)
def pipeline_bytes_of_sums(model: Model, plan: Plan, part: PipelinePart) -> float:
    """Once a step along pp: the gradient of a tied matrix that the first and the last stage
    have."""
    if not model.tied_head or part.has_embedding == part.has_head:
        return constant(0)
    x, n = Symbols(model, plan), named("N", shards_of(plan).optimizer)
    return ring_all_reduce_bytes(constant(2), x.e_g * embedding(model) / x.t / n)


@formula("calls", "context-parallel calls of a block, one micro-batch", source=CONTEXT)
def context_calls_of_block(plan: Plan) -> float:
    """Forward, and backward, where keys travel again in a ring and their gradients with them.

                forward                            backward
    all_gather  an all-gather                      a reduce-scatter
    ring        c - 1 exchanges                    c - 1, and c of gradients
    ulysses     all-to-all of q, k, v and y        the same four
    """
    c = Symbols(None, plan).c
    forward = backward = constant(4 if plan.exchange == "ulysses" else 1)
    if plan.exchange == "ring":
        forward, backward = c - 1, 2 * c - 1
    return (1 + plan.times_again) * forward + backward


@formula(
    "D_cp", "sent for a block by a context-parallel rank, one micro-batch", Unit.BYTES, CONTEXT
)
def context_bytes_of_block(model: Model, plan: Plan) -> float:
    """Gradients in a ring are of the compute dtype, at least fp32."""
    x, e_g = Symbols(model, plan), named("e_g", max(4.0, plan.types.activations))
    own = 2 * x.T * x.kv_held / x.t  # numbers of this rank's keys and values
    forward = backward = (x.c - 1) * x.e * own
    if plan.exchange == "ring":
        backward = (x.c - 1) * x.e * own + x.c * e_g * own
    if plan.exchange == "ulysses":
        forward = backward = (x.c - 1) / x.c * x.e * x.T * (2 * x.q + 2 * x.kv_held) / x.t
    return (1 + plan.times_again) * forward + backward


@formula(
    "calls",
    "all-to-alls of a block, one micro-batch: counts, rows and outputs; gradients",
    source=EXPERTS,
)
def expert_calls_of_block(model: Model, plan: Plan) -> float:
    """Forward, and backward: K rows of d numbers for each token go to the experts, and as many come
    back. Before them, every rank tells every other how many rows it has for each of its experts."""
    return mean_of_blocks(model, 5 + constant(3 * plan.times_again))


@formula(
    "D_ep",
    "sent for a block by the busiest expert-parallel rank, one micro-batch",
    Unit.BYTES,
    EXPERTS,
)
def expert_bytes_of_block(model: Model, plan: Plan) -> float:
    """With equal load of the experts, or Plan.imbalance times as much."""
    x, n, again = Symbols(model, plan), named("n", plan.mesh.size("ep")), plan.times_again
    each = (n - 1) / n * x.e * x.T * x.K * x.d
    counts = (n - 1) / n * 8 * x.E
    if plan.busiest_rows != 1:
        each = named("imbalance", plan.imbalance) * each
    return mean_of_blocks(model, (4 + 2 * again) * each + (1 + again) * counts)


def parameters_beside_experts(model: Model, t: float, part: PipelinePart) -> float:
    """What is averaged along ep: all but the experts."""
    assert model.experts is not None
    x, here = Symbols(model), named("E / n", model.experts.here)
    experts = named("L_stage", part.blocks) * 3 * x.d * x.f * here / t
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
    has_head = model.vocabulary > 0 and part.has_head
    has_embedding = model.vocabulary > 0 and part.has_embedding
    tied = model.tied_head and has_head
    count = part.blocks + (1 if tied else has_embedding + has_head)
    again = part.blocks + tied
    gathered = (
        stage_parameters(model, t, part)
        if tied
        else named("L_stage", part.blocks) * whole_block(model, t)
    )
    hidden, hidden_again = (
        calls_behind_blocks(units, part.blocks, has_head) for units in (count, again)
    )
    return ShardedUnits(count, again, gathered, hidden, hidden_again)


@formula("D_pp", "one message to a neighbouring stage", Unit.BYTES, NARAYANAN)
def boundary_bytes(model: Model, plan: Plan) -> float:
    stream = _residual_stream(model, plan)
    return stream / tensor_ranks(plan) if plan.sequence_parallel else stream


def link_seconds(messages: float, sent: float, level: Level) -> Term:
    """How long a rank's link carries them: latencies of `messages` one after the other, and
    bytes."""
    seconds = sent / (named("W", level.bytes_per_second) * named("eta", level.efficiency))
    if level.oversubscription > 1:
        seconds = named("o", level.oversubscription) * seconds
    seconds = messages * named("alpha", level.latency) + seconds
    return term("t_link", f"time on {level.name}", seconds, Unit.SECONDS, HOCKNEY)
