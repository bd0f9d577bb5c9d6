"""What forward keeps for backward, on one rank and in bytes. Symbols: symbols.py."""

from dataclasses import replace

from ringside.planning.formulas.parameters import down_projection
from ringside.planning.formulas.symbols import Symbols, mean_of_blocks
from ringside.planning.model import Model
from ringside.planning.plan import PipelinePart, Plan, Recomputation
from ringside.planning.quantity import Term, Unit, constant, formula, largest, named, term
from ringside.planning.schedules import GENERATORS

KORTHIKANTI = "Korthikanti et al. 2022"
COURSE = "Stanford CS336, assignment 2"
COUNTED = "counted op by op in planning/formulas/activations.py"
DEFERRED = "autograd/engine/deferred_gradients.hpp"
LOSS = "autograd/ops/losses/linear_cross_entropy.cpp"


def _rows(model: Model) -> float:
    """Numbers of a token's rows for K experts."""
    if not model.experts:
        return named("0", 0)
    return mean_of_blocks(model, named("K h", model.per_token * model.d_model))


def _inner(model: Model) -> float:
    """Numbers of a token inside the feed-forward part, in all experts that compute it."""
    inner = named("K f" if model.experts else "f", model.d_ff * model.per_token)
    return mean_of_blocks(model, inner, named("f_d", model.dense_ff))


def _stream(x: Symbols) -> float:
    """Numbers of the residual stream for each token of the sequence, on one rank."""
    return x.h / x.t if x.plan.sequence_parallel else x.h


def _group_size(model: Model, plan: Plan) -> int:
    """Blocks that one rank recomputes together."""
    return plan.group_of(model.layers // plan.mesh.size("pp") // max(1, plan.chunks))


def _in_groups(given: float, model: Model, plan: Plan) -> float:
    group = _group_size(model, plan)
    return given if group == 1 else given / named("K_1", group)


def _without_recomputation(plan: Plan) -> Plan:
    return replace(plan, recompute=Recomputation())


def _block(formula: float, source: str, detail: str = "") -> Term:
    what = f"activations of a block, for one micro-batch{detail}"
    return term("A_block", what, formula, Unit.BYTES, source)


def _gpt_block(x: Symbols, model: Model, plan: Plan) -> Term:
    """A GPT's block in 16 bits, with dropout. Each 5 a s / h is three tensors of scores: softmax's
    output, dropout's mask and its output (section 4.1). Fused attention keeps none of them, as
    selective recomputation does."""
    s, b, h, a, t, parallel = x.s, x.b, x.h, x.a, x.t, plan.sequence_parallel
    if plan.recompute.kind == "full" and parallel:
        kept = _in_groups(2 * s * b * h / t, model, plan)
        where = "section 5, divided by sequence parallel"
    elif plan.recompute.kind == "full":
        kept, where = _in_groups(2 * s * b * h, model, plan), "table 2"
    elif plan.recompute.kind == "selective" or not model.keeps_scores:
        if parallel:
            kept, where = 34 * s * b * h / t, "equation 6"
        else:
            kept, where = s * b * h * (10 + 24 / t), "table 2"
    elif parallel:
        kept, where = s * b * h * (34 + 5 * a * s / h) / t, "equation 4"
    else:
        kept, where = s * b * h * (10 + 24 / t + 5 * a * s / (h * t)), "equation 2"
    return _block(kept, f"{KORTHIKANTI}, {where}")


def _llama_block(x: Symbols, model: Model, plan: Plan) -> Term:
    """A block of transformer/layers.cpp. Attention is fused and keeps no scores, so selective
    recomputation has nothing to drop. Kept for each token: the block's input and the sum before the
    second norm, both in the residual stream; both normed inputs; q, k, v and the output of
    attention; gate, up and their product; one number per head and per norm. With experts of equal
    load: K rows for the experts and K outputs, K times gate, up and product; logits of the router.
    With norms of heads: q and k before them, and a number per head.

    Context parallel with all_gather keeps the keys and values of all ranks. Sequence parallel
    divides the residual stream. Ringside keeps the normed inputs whole; others gather them again in
    backward."""
    h, q, kv, f, a, t = x.h, x.q, x.kv_held, _inner(model), x.a, x.t
    if plan.recompute.kind == "full":
        share = _in_groups(x.T * x.e * _stream(x), model, plan)
        return _block(share, COUNTED, ": its share of a group's input")
    gathers = plan.exchange == "all_gather" and plan.mesh.size("cp") > 1
    divided = 2 * q + (2 * x.c * kv if gathers else 2 * kv) + 3 * f + a
    if model.qk_norm:
        divided = divided + (q + kv) * (1 + 1 / x.d_head)
    if not plan.sequence_parallel:
        each = 4 * h + 2 + divided / t
    elif model.own:
        each = 2 * h + 2 + (2 * h + divided) / t
    else:
        each = (4 * h + 2 + divided) / t
    if not model.experts:
        return _block(x.T * x.e * each, COUNTED)
    routed, chosen = mean_of_blocks(model, x.E), mean_of_blocks(model, x.K)
    kept = x.T * (x.e * (each + 2 * _rows(model) + routed) + 20 * chosen)
    return _block(kept, COUNTED, ", with equal load of the experts")


def block_activations(model: Model, plan: Plan) -> Term:
    """Activations of one block for one micro-batch, on one rank. What the two matrices of the
    course's block keep for backward are their inputs. Of the gradients that backward makes, none is
    kept."""
    x = Symbols(model, plan)
    if model.kind == "gpt":
        return _gpt_block(x, model, plan)
    if model.kind == "llama":
        return _llama_block(x, model, plan)
    if plan.recompute.kind == "full":
        return _block(x.T * x.e * x.d, COURSE, ": its input")
    return _block(x.T * x.e * (x.d + _inner(model) / x.t), COURSE, ": the inputs of both matrices")


@formula("A_W", "what W needs of a block, for one micro-batch", Unit.BYTES, DEFERRED)
def deferred_activations(model: Model, plan: Plan) -> float:
    """What W needs of a block, between I and W. Kept by our I for each token: both normed inputs
    and the gradients of both halves' outputs, all whole; q, k, v, attention's output and their
    gradients; the product of gate and up, and the gradients of gate and up. Others keep all of the
    block's activations."""
    if not model.own:
        return block_activations(model, _without_recomputation(plan))
    x = Symbols(model, plan)
    return x.T * x.e * (4 * x.h + (2 * x.q + 2 * x.kv_held + 3 * _inner(model)) / x.t)


def forward_memory(model: Model, plan: Plan) -> float:
    """What exists only while forward runs through a block of a llama, in bytes. Without history a
    block's forward frees what it no longer needs."""
    x = Symbols(model, plan)
    if plan.recompute.kind != "full":
        return x.T * x.e * x.h
    return x.T * x.e * (3 * x.h + 2 * _rows(model) + 3 * _inner(model) / x.t)


def _gradients_in_block(model: Model, plan: Plan, is_at_head: bool, backward: str) -> float:
    """What backward holds of a llama's block at its peak: see working_memory()."""
    x = Symbols(model, plan)
    T, h, f, s, rows = x.T, x.h, _inner(model) / x.t, _stream(x), 2 * _rows(model)
    divided, is_input = plan.sequence_parallel, backward == "input"
    gathered = s + h if divided else h  # at down, and in I until W
    down = T * (gathered + rows + f)
    at_down = down + down_projection(model, x.t) if backward == "later" else down
    at_gates = T * (gathered + rows + 3 * f) if is_input else T * (s + rows + 2 * f)
    at_input = T * (2 * h + s if divided else 3 * h)
    in_block = largest(largest(at_down, at_gates), at_input)
    return x.e * (in_block if is_at_head else in_block + x.T * s)


def working_memory(model: Model, plan: Plan, is_at_head: bool, backward: str) -> Term:
    """What exists only while backward runs through a block: its gradients, and under full
    recomputation its activations again. `backward` is "first" for a B that is the first of its
    stage: the gradients of the matrices remain, and are not counted here; "later" for another B, or
    "input" for I.

    In the feed-forward part backward holds for each token the gradient of the block's output and:

        down          the product's gradient, and the gradient of the matrix
        gate and up   their gradients; I also keeps the product, which W needs
        normed input  one gradient by gate, one by up; gate and up are then freed

    Experts hold the gradients of their rows besides, before and behind them. Sequence parallel
    divides the first, and gathers it for down alone. In a pipeline the gradient that the next stage
    sent is there, too. For other kinds of models the papers do not count these."""
    x, is_llama, group = Symbols(model, plan), model.kind == "llama", _group_size(model, plan)
    kept = _gradients_in_block(model, plan, is_at_head, backward) if is_llama else constant(0)
    source = COUNTED
    if plan.recompute.kind != "full":
        what = "gradients within a block, while backward runs through it"
    elif group == 1:
        what = "one block that is computed again, and its gradients"
        kept = block_activations(model, _without_recomputation(plan)) + kept
    else:
        what = "a group of blocks that is computed again, and the gradients of one"
        source = "Chen et al. 2016, section 4"
        inner = plan.recompute.inner
        again = named("K", min(inner, group) if inner > 0 else group)
        kept = again * block_activations(model, _without_recomputation(plan)) + kept
        if inner > 0:
            kept = kept + named("K_1", group) / again * x.T * x.e * _stream(x)
    return term("A_working", what, kept, Unit.BYTES, source)


def _rows_of_logits(model: Model, plan: Plan) -> float:
    """Rows of logits that Ringside computes at a time: cross_entropy_rows() of
    autograd/ops/losses/linear_cross_entropy.cpp."""
    tokens = plan.rank_tokens
    most = max(64, (1 << (23 if plan.device == "cpu" else 27)) // model.vocabulary)
    blocks = max(1, -(-tokens // most))
    return named("R", max(1, -(-tokens // blocks)))


def head_activations(model: Model, plan: Plan) -> Term:
    """Where the last stage is, at its head: the last norm's tensors and logits. Ringside computes
    some rows of logits at a time, and the gradient of the head's matrix with them."""
    x = Symbols(model, plan)
    if model.vocabulary == 0:
        parts, kept, source = "none", 0.0, model.source
    elif model.kind == "gpt":
        parts, source = "last norm, its output, fp32 logits", f"{KORTHIKANTI}, section 4.3"
        kept = 4 * x.s * x.b * x.h * (1 + x.V / x.h) / x.t
    else:
        parts, source = "rows of logits, last norm, the head's gradient", LOSS
        kept = x.e * ((_rows_of_logits(model, plan) + x.h) * x.V / x.t + 3 * x.T * x.h)
    return term("A_head", f"activations at the head: {parts}", kept, Unit.BYTES, source)


@formula(
    "A_kept",
    "kept at the head of a micro-batch: gradients of its matrix and input; the norm's input",
    Unit.BYTES,
    LOSS,
)
def kept_head(model: Model, plan: Plan) -> float:
    """What is kept at the head until backward."""
    x = Symbols(model, plan)
    if model.kind != "llama":
        return constant(0)
    return x.e * (x.h * x.V / x.t + x.T * (x.h + _stream(x)))


@formula("A_fp32", "fp32 copies of bf16 at the head", Unit.BYTES, LOSS)
def converted_head(model: Model, plan: Plan) -> float:
    """The CPU converts values to fp32 while an op computes: the largest such copies are those of
    the head's matrix, its gradient, and the rows of logits. A device multiplies bf16: its logits
    are fp32 and their gradient is bf16, and the gradient of the matrix is fp32, with a copy in
    bf16."""
    x = Symbols(model, plan)
    matrix, logits = x.h * x.V / x.t, _rows_of_logits(model, plan) * x.V / x.t
    return 6 * matrix + 2 * logits if plan.device == "cpu" else 4 * matrix + 4 * logits


@formula(
    "A_embedding",
    "at the embedding: the gradients of its matrix and of its output",
    Unit.BYTES,
    COUNTED,
)
def embedding_activations(model: Model, plan: Plan) -> float:
    """Where the first stage is, when backward has come to the embedding."""
    x = Symbols(model, plan)
    return x.e * (x.h * x.V / x.t + 3 * x.T * x.h)


def blocks_in_flight(plan: Plan, part: PipelinePart) -> Term:
    """How many blocks' activations a part of the pipeline holds at its peak: the blocks of its
    stages times the passes in flight, counted on the schedule; the papers' formula beside it."""
    passes = part.blocks_in_flight / part.blocks if part.blocks else 0.0
    in_flight = GENERATORS[plan.schedule].in_flight if plan.schedule in GENERATORS else ""
    source = "c forward passes of the rank, counted on the schedule"
    source += f"; of its stages {in_flight}" if in_flight else ""
    blocks = named("L_stage", part.blocks) * named("c", passes)
    return term("L_held", "blocks whose activations the stage holds", blocks, source=source)
