"""What a step computes: FLOPs, bytes of memory, kernels, and the seconds of them.

Symbols: T tokens of a micro-batch, s of a sequence, d width, f width inside the feed-forward part,
q and kv width of query and of key (or value) heads, a heads, V vocabulary, L blocks, n
micro-batches of all ranks; C FLOP/s of a device, eta the share that is reached, W_mem bytes per
second of memory.
"""

from typing import Tuple

from ringside.planning.formulas.parameters import active_matrices
from ringside.planning.formulas.state import shards_of
from ringside.planning.formulas.symbols import mean_of_blocks, micro_batch_tokens, tensor_ranks
from ringside.planning.machine import Machine
from ringside.planning.model import Model
from ringside.planning.plan import Plan, Types
from ringside.planning.quantity import Term, Unit, constant, named, term

NARAYANAN = "Narayanan et al. 2021, appendix"
FLOPS = "Korthikanti et al. 2022, appendix A"
COUNTED = "counted op by op in planning/formulas/work.py"


def kernels_of(model: Model) -> Tuple[float, float]:
    """Kernels of a block, forward: products, and others. A product has two in backward, any other
    op one.

        GPT      products: q with k and v, output, both matrices: 4
                 others: two LayerNorms, two dropouts with the residual's addition, bias with
                 GELU: 5
                 scores: two products, mask with softmax, dropout; or one fused attention
        Llama    products: q, k, v, output, gate, up, down: 7
                 others: two RMSNorms, two additions, two rotary positions, SwiGLU, attention: 8
                 experts: router, its softmax and choice, rows gathered and added up: 1 and 4, and
                 of each expert gate, up, down and SwiGLU
    """
    if model.kind == "feed_forward":
        return 2.0, 0.0
    if model.kind == "gpt":
        return (6.0, 7.0) if model.keeps_scores else (4.0, 6.0)
    if not model.experts:
        return 7.0, 8.0
    here = model.experts.here
    return (
        4 + float(mean_of_blocks(model, 1 + 3 * here, 3.0)),
        7 + float(mean_of_blocks(model, 4 + here, 1.0)),
    )


def attention_flops(model: Model, plan: Plan) -> float:
    """Scores and what they weigh, forward, one micro-batch; no causal saving."""
    return 4 * micro_batch_tokens(plan) * named("s", plan.sequence) * named("q", model.q_width)


def block_forward_flops(model: Model, plan: Plan) -> Term:
    products = 2 * micro_batch_tokens(plan) * active_matrices(model)
    return term(
        "F_block",
        "forward of a block, one micro-batch",
        products if model.heads == 0 else products + attention_flops(model, plan),
        Unit.FLOPS,
        NARAYANAN,
    )


def busiest_forward_flops(model: Model, plan: Plan) -> float:
    """The same on the rank of ep whose experts have most rows."""
    forward = block_forward_flops(model, plan)
    if plan.busiest_rows == 1:
        return forward
    d, f, chosen = named("d", model.d_model), named("f", model.d_ff), named("K", model.per_token)
    more = named("imbalance - 1", plan.imbalance - 1)
    return forward + mean_of_blocks(model, more * 2 * micro_batch_tokens(plan) * chosen * 3 * d * f)


def head_forward_flops(model: Model, plan: Plan) -> Term:
    return term(
        "F_head",
        "forward of the head, one micro-batch",
        2 * micro_batch_tokens(plan) * named("d", model.d_model) * named("V", model.vocabulary),
        Unit.FLOPS,
        NARAYANAN,
    )


def block_recomputed_flops(model: Model, plan: Plan) -> Term:
    """Fused attention keeps no scores, so selective recomputation has nothing to compute again."""
    again = constant(0)
    if plan.recompute.kind == "full":
        again = plan.times_again * block_forward_flops(model, plan)
    if plan.recompute.kind == "selective" and model.keeps_scores:
        again = attention_flops(model, plan)
    return term(
        "F_again",
        "forward that is computed again in backward",
        again,
        Unit.FLOPS,
        "Korthikanti et al. 2022, section 5",
    )


def _micro_batches_of_all(plan: Plan) -> float:
    return named("n", plan.micro_batches * plan.mesh.data_ranks() * plan.mesh.size("cp"))


def model_flops(model: Model, plan: Plan) -> Term:
    """Of a step, all ranks together."""
    blocks = named("L", model.layers)
    return term(
        "F_model",
        "forward and backward of the model, whole batch",
        3
        * _micro_batches_of_all(plan)
        * (blocks * block_forward_flops(model, plan) + head_forward_flops(model, plan)),
        Unit.FLOPS,
        FLOPS,
    )


def hardware_flops(model: Model, plan: Plan) -> Term:
    blocks = named("L", model.layers)
    return term(
        "F_hardware",
        "the same, with what is computed again",
        _micro_batches_of_all(plan)
        * (
            blocks * (3 * block_forward_flops(model, plan) + block_recomputed_flops(model, plan))
            + 3 * head_forward_flops(model, plan)
        ),
        Unit.FLOPS,
        FLOPS,
    )


def scores_traffic(model: Model, plan: Plan) -> Term:
    """Of a GPT's scores, a s of them for each token: scale and mask, softmax, and dropout read and
    write them, and dropout writes a mask of one byte. 6 e + 1 bytes, 13 in 16 bits."""
    e, a, s = (
        named("e", plan.types.activations),
        named("a", model.heads),
        named("s", plan.sequence),
    )
    return term(
        "B_scores",
        "memory traffic of attention's scores, forward of one token",
        (6 * e + 1) * a * s / tensor_ranks(plan) if model.keeps_scores else constant(0),
        Unit.BYTES,
        COUNTED,
    )


def block_forward_traffic(model: Model, plan: Plan) -> Term:
    """Besides the scores, in bytes per token:

    GPT      two LayerNorms (read, write), two dropouts with the residual's addition (read two,
             write one, and a mask of one byte): 2 (2 e + 3 e + 1) d = (10 e + 2) d
             GELU: 2 e f
    Llama    two RMSNorms and two additions: 10 e d;  rotary positions: 2 e (q + kv)
             SwiGLU: 3 e f, of K experts K times as much, and 5 e K d to gather a token's rows
             (read, write) and to add up what K experts say (read, weigh, add)
             fused attention reads q, k, v and writes its output: e (2 q + 2 kv)
    """
    t, e, d = tensor_ranks(plan), named("e", plan.types.activations), named("d", model.d_model)
    f = mean_of_blocks(
        model, named("f", model.d_ff * model.per_token), named("f_d", model.dense_ff)
    )
    q, kv = named("q", model.q_width), named("kv", model.kv_width)
    whole = divided = constant(0)
    if model.kind == "gpt":
        whole, divided = (10 * e + 2) * d, 2 * e * f
    if model.kind == "llama":
        whole, divided = 10 * e * d, e * (4 * q + 4 * kv + 3 * f)
    if model.experts:
        whole = whole + mean_of_blocks(model, 5 * e * named("K", model.per_token) * d)
    return term(
        "B_forward",
        "memory traffic of a block outside of products, forward of one token",
        ((whole + divided) / t if plan.sequence_parallel else whole + divided / t)
        + scores_traffic(model, plan),
        Unit.BYTES,
        COUNTED,
    )


def block_traffic(model: Model, plan: Plan) -> Term:
    forward, kind = block_forward_traffic(model, plan), plan.recompute.kind
    traffic = (
        (3 + plan.times_again) * forward
        if kind == "full"
        else 3 * forward + scores_traffic(model, plan)
        if kind == "selective"
        else 3 * forward
    )
    return term(
        "B_block",
        "the same, with backward and recomputation, one micro-batch",
        micro_batch_tokens(plan) * traffic,
        Unit.BYTES,
        "backward moves twice what forward does",
    )


def block_forward_kernels(model: Model) -> Term:
    products, others = kernels_of(model)
    return term(
        "K_forward",
        "kernels of a block, forward",
        named("K_products", products) + named("K_others", others),
        source=COUNTED,
    )


def block_kernels(model: Model, plan: Plan) -> Term:
    products, others = (
        named(name, count) for name, count in zip(("K_products", "K_others"), kernels_of(model))
    )
    again = plan.times_again
    kernels = (3 + again) * products + (2 + again) * others
    if plan.recompute.kind == "selective" and model.keeps_scores:
        kernels = kernels + 4
    return term(
        "K_block",
        "the same, with backward and recomputation, one micro-batch",
        kernels,
        source="backward has two products for each of forward",
    )


def accumulation_traffic(parameters: float, plan: Plan) -> Term:
    """Of m micro-batches all but the first add their gradients: a product writes one, and another
    kernel reads it and the sum, and writes the sum. So do PyTorch and Ringside. With fused
    gradients the product itself adds to the sum, while it computes."""
    e, g = named("e", plan.types.activations), named("e_g", plan.types.gradients)
    m, n = named("m", plan.micro_batches), named("N", shards_of(plan).gradients)
    return term(
        "B_sum",
        "memory traffic of adding up gradients, one micro-batch: the mean of m",
        constant(0) if plan.fused_gradients else parameters * (e + 2 * g) * (m - 1) / (m * n),
        Unit.BYTES,
        "read a gradient and the sum, write the sum",
    )


def optimizer_traffic(parameters: float, types: Types, shards: float) -> Term:
    e, g = named("e", types.parameters), named("e_g", types.gradients)
    m, o, n = named("e_m", types.masters), named("e_o", types.moments), named("N", shards)
    return term(
        "B_step",
        "memory traffic of the optimizer's step",
        parameters * (g + 2 * (m + o) + e) / n,
        Unit.BYTES,
        "read the gradient; read and write masters and moments; write the parameter",
    )


# Seconds.


def block_width(model: Model, plan: Plan) -> float:
    """The shortest side of a block's matrices on one device."""
    t = float(plan.mesh.size("tp"))
    width = min(float(plan.rank_sequence * plan.micro_batch), float(model.d_model), model.d_ff / t)
    return min(width, model.q_width / t) if model.heads > 0 else width


def _head_width(model: Model, plan: Plan) -> float:
    return min(
        float(plan.rank_sequence * plan.micro_batch),
        float(model.d_model),
        model.vocabulary / plan.mesh.size("tp"),
    )


def product_seconds(flops: float, width: float, plan: Plan, machine: Machine) -> float:
    """Matrix products of all tensor-parallel ranks, on one of them."""
    eta = named("eta", machine.matmul_efficiency_at(width))
    return flops / (tensor_ranks(plan) * named("C", machine.peak) * eta)


def memory_seconds(traffic: float, machine: Machine) -> float:
    return traffic / (
        named("W_mem", machine.memory_bandwidth) * named("eta_mem", machine.memory_efficiency)
    )


def kernel_seconds(kernels: float, machine: Machine) -> float:
    return kernels * named("t_kernel", machine.kernel_seconds)


def block_seconds(model: Model, plan: Plan, machine: Machine) -> Term:
    forward = busiest_forward_flops(model, plan)
    again = (
        block_recomputed_flops(model, plan)
        if plan.busiest_rows == 1
        else plan.times_again * forward
    )
    return term(
        "t_block",
        "forward and backward of a block, one micro-batch",
        product_seconds(3 * forward + again, block_width(model, plan), plan, machine)
        + memory_seconds(block_traffic(model, plan), machine)
        + kernel_seconds(block_kernels(model, plan), machine),
        Unit.SECONDS,
        "products at eta of the peak, other ops at the memory's bandwidth, and a fixed "
        "cost of each kernel",
    )


def head_seconds(model: Model, plan: Plan, machine: Machine) -> Term:
    """fp32 logits are written by the product, read twice for the loss, and their gradient is
    written and read twice. Three products, the norm, and the loss: 5 kernels and the norm's
    backward."""
    logits = micro_batch_tokens(plan) * named("V", model.vocabulary)
    products = product_seconds(
        3 * head_forward_flops(model, plan), _head_width(model, plan), plan, machine
    )
    return term(
        "t_head",
        "forward and backward of the head, one micro-batch",
        products
        + memory_seconds(24 * logits / tensor_ranks(plan), machine)
        + kernel_seconds(constant(6), machine),
        Unit.SECONDS,
        "as of a block; six passes over fp32 logits",
    )


def optimizer_seconds(traffic: float, machine: Machine) -> Term:
    return term(
        "t_step",
        "the optimizer's step",
        memory_seconds(traffic, machine),
        Unit.SECONDS,
        "limited by the memory's bandwidth",
    )


def model_flops_utilization(flops: float, seconds: float, devices: float, machine: Machine) -> Term:
    return term(
        "MFU",
        "model FLOPs utilization",
        flops / (named("N", devices) * named("C", machine.peak) * seconds),
        Unit.SHARE,
        "Chowdhery et al. 2022 (PaLM), appendix B",
    )
