"""What forward keeps for backward, on one rank and in bytes.

Symbols, as in Korthikanti et al. 2022: s tokens of a sequence, b sequences of a micro-batch, h
width, a heads, t ranks of a tensor-parallel group, p stages, L blocks, v chunks of a stage, m
micro-batches. For Ringside's own model also T = b s tokens, e bytes of a number, kv and f as in
parameters.py.
"""

from dataclasses import dataclass, replace

from ringside.planning.formulas.parameters import down_projection
from ringside.planning.formulas.symbols import mean_of_blocks, micro_batch_tokens, tensor_ranks
from ringside.planning.model import Model
from ringside.planning.plan import PipelinePart, Plan, Recomputation
from ringside.planning.quantity import Term, Unit, constant, largest, named, term
from ringside.planning.schedules import GENERATORS

KORTHIKANTI = "Korthikanti et al. 2022"
COUNTED = "counted op by op in planning/formulas/activations.py"
LOSS = "autograd/ops/losses/linear_cross_entropy.cpp"


@dataclass
class _Symbols:
    """The symbols of this file. rows: numbers of a token's rows for K experts; f: inside these.
    stream: numbers of the residual stream for each token of the sequence."""

    model: Model
    plan: Plan

    def __post_init__(self) -> None:
        model, plan, experts = self.model, self.plan, self.model.experts
        self.s, self.b = named("s", plan.sequence), named("b", plan.micro_batch)
        self.h, self.a = named("h", model.d_model), named("a", model.heads)
        self.t = tensor_ranks(plan)
        self.tokens, self.e = micro_batch_tokens(plan), named("e", plan.types.activations)
        inner = named("K f" if experts else "f", model.d_ff * model.per_token)
        self.f = mean_of_blocks(model, inner, named("f_d", model.dense_ff))
        self.rows = (
            mean_of_blocks(model, named("K h", model.per_token * model.d_model))
            if experts
            else named("0", 0)
        )
        self.q = named("q", model.q_width)
        self.kv = named("kv", max(model.kv_width, model.head_size * plan.mesh.size("tp")))
        self.vocabulary = named("V", model.vocabulary)
        self.stream = self.h / self.t if plan.sequence_parallel else self.h


def _group_size(model: Model, plan: Plan) -> int:
    """Blocks that one rank recomputes together."""
    return plan.group_of(model.layers // plan.mesh.size("pp") // max(1, plan.chunks))


def _in_groups(given: float, model: Model, plan: Plan) -> float:
    group = _group_size(model, plan)
    return given if group == 1 else given / named("K_1", group)


def _without_recomputation(plan: Plan) -> Plan:
    return replace(plan, recompute=Recomputation())


def _gpt_block(x: _Symbols, model: Model, plan: Plan) -> Term:
    """A GPT's block in 16 bits, with dropout. Each 5 a s / h is three tensors of scores: softmax's
    output, dropout's mask and its output (section 4.1). Fused attention keeps none of them, as
    selective recomputation does."""
    s, b, h, a, t, parallel = x.s, x.b, x.h, x.a, x.t, plan.sequence_parallel

    def kept(formula: float, where: str) -> Term:
        return term(
            "A_block",
            "activations of a block, for one micro-batch",
            formula,
            Unit.BYTES,
            f"{KORTHIKANTI}, {where}",
        )

    if plan.recompute.kind == "full":
        if parallel:
            return kept(
                _in_groups(2 * s * b * h / t, model, plan),
                "section 5, divided by sequence parallel",
            )
        return kept(_in_groups(2 * s * b * h, model, plan), "table 2")
    if plan.recompute.kind == "selective" or not model.keeps_scores:
        return (
            kept(34 * s * b * h / t, "equation 6")
            if parallel
            else kept(s * b * h * (10 + 24 / t), "table 2")
        )
    if parallel:
        return kept(s * b * h * (34 + 5 * a * s / h) / t, "equation 4")
    return kept(s * b * h * (10 + 24 / t + 5 * a * s / (h * t)), "equation 2")


def _llama_block(x: _Symbols, model: Model, plan: Plan) -> Term:
    """A block of transformer/layers.cpp. Attention is fused and keeps no scores, so selective
    recomputation has nothing to drop. Kept for each token: the block's input and the sum before the
    second norm, both in the residual stream; both normed inputs; q, k, v and the output of
    attention; gate, up and their product; one number per head and per norm. With experts of equal
    load: K rows for the experts and K outputs, K times gate, up and product; logits of the router.
    With norms of heads: q and k before them, and a number per head.

    Context parallel with all_gather keeps the keys and values of all ranks. Sequence parallel
    divides the residual stream. Ringside keeps the normed inputs whole; others gather them again in
    backward."""
    h, q, kv, f, a, t, what = (
        x.h,
        x.q,
        x.kv,
        x.f,
        x.a,
        x.t,
        "activations of a block, for one micro-batch",
    )
    if plan.recompute.kind == "full":
        return term(
            "A_block",
            f"{what}: its share of a group's input",
            _in_groups(x.tokens * x.e * x.stream, model, plan),
            Unit.BYTES,
            COUNTED,
        )
    ranks = plan.mesh.size("cp") if plan.exchange == "all_gather" else 1
    divided = 2 * q + (2 * named("c", ranks) * kv if ranks > 1 else 2 * kv) + 3 * f + a
    if model.qk_norm:
        divided = divided + (q + kv) * (1 + 1 / named("d_head", model.head_size))
    if not plan.sequence_parallel:
        each = 4 * h + 2 + divided / t
    elif model.own:
        each = 2 * h + 2 + (2 * h + divided) / t
    else:
        each = (4 * h + 2 + divided) / t
    if not model.experts:
        return term("A_block", what, x.tokens * x.e * each, Unit.BYTES, COUNTED)
    routed = mean_of_blocks(model, named("E", model.experts.routed))
    chosen = mean_of_blocks(model, named("K", model.per_token))
    return term(
        "A_block",
        f"{what}, with equal load of the experts",
        x.tokens * (x.e * (each + 2 * x.rows + routed) + 20 * chosen),
        Unit.BYTES,
        COUNTED,
    )


def feed_forward_activations(tokens: float, width: float, inner: float, e: float, t: float) -> Term:
    """What the two matrices of the course's block keep for backward: their inputs. Of the gradients
    that backward makes, none is kept."""
    return term(
        "A_block",
        "activations of a block, for one micro-batch: the inputs of both matrices",
        tokens * e * (width + inner / t),
        Unit.BYTES,
        "Stanford CS336, assignment 2",
    )


def block_activations(model: Model, plan: Plan) -> Term:
    """Activations of one block for one micro-batch, on one rank."""
    x = _Symbols(model, plan)
    if model.kind == "gpt":
        return _gpt_block(x, model, plan)
    if model.kind == "llama":
        return _llama_block(x, model, plan)
    d = named("d", model.d_model)
    if plan.recompute.kind == "full":
        return term(
            "A_block",
            "activations of a block, for one micro-batch: its input",
            x.tokens * x.e * d,
            Unit.BYTES,
            "Stanford CS336, assignment 2",
        )
    return feed_forward_activations(x.tokens, d, x.f, x.e, x.t)


def deferred_activations(model: Model, plan: Plan) -> Term:
    """What W needs of a block, between I and W. Kept by our I for each token: both normed inputs
    and the gradients of both halves' outputs, all whole; q, k, v, attention's output and their
    gradients; the product of gate and up, and the gradients of gate and up. Others keep all of the
    block's activations."""
    x = _Symbols(model, plan)
    kept: float = block_activations(model, _without_recomputation(plan))
    if model.own:
        kept = x.tokens * x.e * (4 * x.h + (2 * x.q + 2 * x.kv + 3 * x.f) / x.t)
    return term(
        "A_W",
        "what W needs of a block, for one micro-batch",
        kept,
        Unit.BYTES,
        "autograd/engine/deferred_gradients.hpp",
    )


def forward_memory(model: Model, plan: Plan) -> float:
    """What exists only while forward runs through a block of a llama, in bytes. Without history a
    block's forward frees what it no longer needs."""
    x = _Symbols(model, plan)
    full = plan.recompute.kind == "full"
    return x.tokens * x.e * (3 * x.h + 2 * x.rows + 3 * x.f / x.t if full else x.h)


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
    x, gradients = _Symbols(model, plan), constant(0)
    if model.kind == "llama":
        T, h, f, s, rows = x.tokens, x.h, x.f / x.t, x.stream, 2 * x.rows
        divided, is_input = plan.sequence_parallel, backward == "input"
        gathered = s + h if divided else h  # at down, and in I until W
        down = T * (gathered + rows + f)
        at_down = down + down_projection(model, x.t) if backward == "later" else down
        at_gates = T * (gathered + rows + 3 * f) if is_input else T * (s + rows + 2 * f)
        at_input = T * (2 * h + s if divided else 3 * h)
        in_block = largest(largest(at_down, at_gates), at_input)
        gradients = x.e * (in_block if is_at_head else in_block + x.tokens * x.stream)
    if plan.recompute.kind != "full":
        return term(
            "A_working",
            "gradients within a block, while backward runs through it",
            gradients,
            Unit.BYTES,
            COUNTED,
        )
    whole = block_activations(model, _without_recomputation(plan))
    group, inner = _group_size(model, plan), plan.recompute.inner
    if group == 1:
        return term(
            "A_working",
            "one block that is computed again, and its gradients",
            whole + gradients,
            Unit.BYTES,
            COUNTED,
        )
    outer, again = named("K_1", group), named("K", min(inner, group) if inner > 0 else group)
    kept = again * whole + gradients
    if inner > 0:
        kept = kept + outer / again * x.tokens * x.e * x.stream
    return term(
        "A_working",
        "a group of blocks that is computed again, and the gradients of one",
        kept,
        Unit.BYTES,
        "Chen et al. 2016, section 4",
    )


def _rows_of_logits(model: Model, plan: Plan) -> float:
    """Rows of logits that Ringside computes at a time: cross_entropy_rows() of
    autograd/ops/losses/linear_cross_entropy.cpp."""
    tokens = plan.rank_sequence * plan.micro_batch
    most = max(64, (1 << (23 if plan.device == "cpu" else 27)) // model.vocabulary)
    blocks = max(1, -(-tokens // most))
    return named("R", max(1, -(-tokens // blocks)))


def head_activations(model: Model, plan: Plan) -> Term:
    """Where the last stage is, at its head: the last norm's tensors and logits. Ringside computes
    some rows of logits at a time, and the gradient of the head's matrix with them."""
    x = _Symbols(model, plan)
    if model.vocabulary == 0:
        return term("A_head", "activations at the head: none", 0.0, Unit.BYTES, model.source)
    if model.kind == "gpt":
        return term(
            "A_head",
            "activations at the head: last norm, its output, fp32 logits",
            4 * x.s * x.b * x.h * (1 + x.vocabulary / x.h) / x.t,
            Unit.BYTES,
            f"{KORTHIKANTI}, section 4.3",
        )
    return term(
        "A_head",
        "activations at the head: rows of logits, last norm, the head's gradient",
        x.e * ((_rows_of_logits(model, plan) + x.h) * x.vocabulary / x.t + 3 * x.tokens * x.h),
        Unit.BYTES,
        LOSS,
    )


def kept_head(model: Model, plan: Plan) -> Term:
    """What is kept at the head until backward."""
    x, kept = _Symbols(model, plan), constant(0)
    if model.kind == "llama":
        kept = x.e * (x.h * x.vocabulary / x.t + x.tokens * (x.h + x.stream))
    return term(
        "A_kept",
        "kept at the head of a micro-batch: gradients of its matrix and input; the norm's input",
        kept,
        Unit.BYTES,
        LOSS,
    )


def converted_head(model: Model, plan: Plan) -> Term:
    """The CPU converts values to fp32 while an op computes: the largest such copies are those of
    the head's matrix, its gradient, and the rows of logits. A device multiplies bf16: its logits
    are fp32 and their gradient is bf16, and the gradient of the matrix is fp32, with a copy in
    bf16."""
    x = _Symbols(model, plan)
    matrix = x.h * x.vocabulary / x.t
    logits = _rows_of_logits(model, plan) * x.vocabulary / x.t
    copies = 6 * matrix + 2 * logits if plan.device == "cpu" else 4 * matrix + 4 * logits
    return term("A_fp32", "fp32 copies of bf16 at the head", copies, Unit.BYTES, LOSS)


def embedding_activations(model: Model, plan: Plan) -> Term:
    """Where the first stage is, when backward has come to the embedding."""
    x = _Symbols(model, plan)
    return term(
        "A_embedding",
        "at the embedding: the gradients of its matrix and of its output",
        x.e * (x.h * x.vocabulary / x.t + 3 * x.tokens * x.h),
        Unit.BYTES,
        COUNTED,
    )


def blocks_in_flight(plan: Plan, part: PipelinePart) -> Term:
    """How many blocks' activations a part of the pipeline holds at its peak: the blocks of its
    stages times the passes in flight, counted on the schedule; the papers' formula beside it."""
    passes = part.blocks_in_flight / part.blocks if part.blocks else 0.0
    formula = GENERATORS[plan.schedule].in_flight if plan.schedule in GENERATORS else ""
    return term(
        "L_held",
        "blocks whose activations the stage holds",
        named("L_stage", part.blocks) * named("c", passes),
        source="c forward passes of the rank, counted on the schedule"
        + (f"; of its stages {formula}" if formula else ""),
    )
