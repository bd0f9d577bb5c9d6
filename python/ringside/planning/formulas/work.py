"""What a step computes: FLOPs, bytes of memory, kernels, and the seconds of them.

Symbols: symbols.py; n micro-batches of all ranks; C FLOP/s of a device, eta the share that is
reached, W_mem bytes per second of memory.
"""

from typing import Tuple

from ringside.planning.formulas.parameters import active_matrices
from ringside.planning.formulas.state import bytes_of_a_number, shards_of
from ringside.planning.formulas.symbols import Symbols, mean_of_blocks, tensor_ranks
from ringside.planning.machine import Machine
from ringside.planning.model import Model
from ringside.planning.plan import Plan, Types
from ringside.planning.quantity import Unit, constant, formula, named

NARAYANAN = "Narayanan et al. 2021, appendix"
FLOPS = "Korthikanti et al. 2022, appendix A"
AGAIN = "Korthikanti et al. 2022, section 5"
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
    products = 4 + float(mean_of_blocks(model, 1 + 3 * here, 3.0))
    return products, 7 + float(mean_of_blocks(model, 4 + here, 1.0))


def attention_flops(model: Model, plan: Plan) -> float:
    """Scores and what they weigh, forward, one micro-batch; no causal saving."""
    x = Symbols(model, plan)
    return 4 * x.T * x.s * x.q


@formula("F_block", "forward of a block, one micro-batch", Unit.FLOPS, NARAYANAN)
def block_forward_flops(model: Model, plan: Plan) -> float:
    products = 2 * Symbols(model, plan).T * active_matrices(model)
    return products if model.heads == 0 else products + attention_flops(model, plan)


def busiest_forward_flops(model: Model, plan: Plan) -> float:
    """The same on the rank of ep whose experts have most rows."""
    forward, x = block_forward_flops(model, plan), Symbols(model, plan)
    if plan.busiest_rows == 1:
        return forward
    more = named("imbalance - 1", plan.imbalance - 1)
    return forward + mean_of_blocks(model, more * 2 * x.T * x.K * 3 * x.d * x.f)


@formula("F_head", "forward of the head, one micro-batch", Unit.FLOPS, NARAYANAN)
def head_forward_flops(model: Model, plan: Plan) -> float:
    x = Symbols(model, plan)
    return 2 * x.T * x.d * x.V


@formula("F_again", "forward that is computed again in backward", Unit.FLOPS, AGAIN)
def block_recomputed_flops(model: Model, plan: Plan) -> float:
    """Fused attention keeps no scores, so selective recomputation has nothing to compute again."""
    if plan.recompute.kind == "full":
        return plan.times_again * block_forward_flops(model, plan)
    if plan.recompute.kind == "selective" and model.keeps_scores:
        return attention_flops(model, plan)
    return constant(0)


def _micro_batches_of_all(plan: Plan) -> float:
    return named("n", plan.micro_batches * plan.mesh.data_ranks() * plan.mesh.size("cp"))


@formula("F_model", "forward and backward of the model, whole batch", Unit.FLOPS, FLOPS)
def model_flops(model: Model, plan: Plan) -> float:
    """Of a step, all ranks together."""
    blocks = Symbols(model).L * block_forward_flops(model, plan)
    return 3 * _micro_batches_of_all(plan) * (blocks + head_forward_flops(model, plan))


@formula("F_hardware", "the same, with what is computed again", Unit.FLOPS, FLOPS)
def hardware_flops(model: Model, plan: Plan) -> float:
    block = 3 * block_forward_flops(model, plan) + block_recomputed_flops(model, plan)
    head = 3 * head_forward_flops(model, plan)
    return _micro_batches_of_all(plan) * (Symbols(model).L * block + head)


@formula(
    "B_scores", "memory traffic of attention's scores, forward of one token", Unit.BYTES, COUNTED
)
def scores_traffic(model: Model, plan: Plan) -> float:
    """Of a GPT's scores, a s of them for each token: scale and mask, softmax, and dropout read and
    write them, and dropout writes a mask of one byte. 6 e + 1 bytes, 13 in 16 bits."""
    x = Symbols(model, plan)
    return (6 * x.e + 1) * x.a * x.s / x.t if model.keeps_scores else constant(0)


@formula(
    "B_forward",
    "memory traffic of a block outside of products, forward of one token",
    Unit.BYTES,
    COUNTED,
)
def block_forward_traffic(model: Model, plan: Plan) -> float:
    """Besides the scores, in bytes per token:

    GPT      two LayerNorms (read, write), two dropouts with the residual's addition (read two,
             write one, and a mask of one byte): 2 (2 e + 3 e + 1) d = (10 e + 2) d
             GELU: 2 e f
    Llama    two RMSNorms and two additions: 10 e d;  rotary positions: 2 e (q + kv)
             SwiGLU: 3 e f, of K experts K times as much, and 5 e K d to gather a token's rows
             (read, write) and to add up what K experts say (read, weigh, add)
             fused attention reads q, k, v and writes its output: e (2 q + 2 kv)
    """
    x = Symbols(model, plan)
    f = mean_of_blocks(model, named("f", model.d_ff * model.per_token), x.f_d)
    whole = divided = constant(0)
    if model.kind == "gpt":
        whole, divided = (10 * x.e + 2) * x.d, 2 * x.e * f
    if model.kind == "llama":
        whole, divided = 10 * x.e * x.d, x.e * (4 * x.q + 4 * x.kv + 3 * f)
    if model.experts:
        whole = whole + mean_of_blocks(model, 5 * x.e * x.K * x.d)
    both = (whole + divided) / x.t if plan.sequence_parallel else whole + divided / x.t
    return both + scores_traffic(model, plan)


@formula(
    "B_block",
    "the same, with backward and recomputation, one micro-batch",
    Unit.BYTES,
    "backward moves twice what forward does",
)
def block_traffic(model: Model, plan: Plan) -> float:
    traffic = (3 + plan.times_again) * block_forward_traffic(model, plan)
    if plan.recompute.kind == "selective":
        traffic = traffic + scores_traffic(model, plan)
    return Symbols(model, plan).T * traffic


@formula("K_forward", "kernels of a block, forward", source=COUNTED)
def block_forward_kernels(model: Model) -> float:
    products, others = kernels_of(model)
    return named("K_products", products) + named("K_others", others)


@formula(
    "K_block",
    "the same, with backward and recomputation, one micro-batch",
    source="backward has two products for each of forward",
)
def block_kernels(model: Model, plan: Plan) -> float:
    (products, others), again = kernels_of(model), plan.times_again
    kernels = (3 + again) * named("K_products", products) + (2 + again) * named("K_others", others)
    selective = plan.recompute.kind == "selective" and model.keeps_scores
    return kernels + 4 if selective else kernels


@formula(
    "B_sum",
    "memory traffic of adding up gradients, one micro-batch: the mean of m",
    Unit.BYTES,
    "read a gradient and the sum, write the sum",
)
def accumulation_traffic(parameters: float, plan: Plan) -> float:
    """Of m micro-batches all but the first add their gradients: a product writes one, and another
    kernel reads it and the sum, and writes the sum. So do PyTorch and Ringside. With fused
    gradients the product itself adds to the sum, while it computes."""
    x, n = Symbols(None, plan), named("N", shards_of(plan).gradients)
    if plan.fused_gradients:
        return constant(0)
    return parameters * (x.e + 2 * x.e_g) * (x.m - 1) / (x.m * n)


@formula(
    "B_step",
    "memory traffic of the optimizer's step",
    Unit.BYTES,
    "read the gradient; read and write masters and moments; write the parameter",
)
def optimizer_traffic(parameters: float, types: Types, shards: float) -> float:
    e, e_g, e_m, e_o = bytes_of_a_number(types)
    return parameters * (e_g + 2 * (e_m + e_o) + e) / named("N", shards)


# Seconds.


def block_width(model: Model, plan: Plan) -> float:
    """The shortest side of a block's matrices on one device."""
    t = float(plan.mesh.size("tp"))
    width = min(float(plan.rank_tokens), float(model.d_model), model.d_ff / t)
    return min(width, model.q_width / t) if model.heads > 0 else width


def _head_width(model: Model, plan: Plan) -> float:
    vocabulary = model.vocabulary / plan.mesh.size("tp")
    return min(float(plan.rank_tokens), float(model.d_model), vocabulary)


def product_seconds(flops: float, width: float, plan: Plan, machine: Machine) -> float:
    """Matrix products of all tensor-parallel ranks, on one of them."""
    eta = named("eta", machine.matmul_efficiency_at(width))
    return flops / (tensor_ranks(plan) * named("C", machine.peak) * eta)


def memory_seconds(traffic: float, machine: Machine) -> float:
    eta = named("eta_mem", machine.memory_efficiency)
    return traffic / (named("W_mem", machine.memory_bandwidth) * eta)


def kernel_seconds(kernels: float, machine: Machine) -> float:
    return kernels * named("t_kernel", machine.kernel_seconds)


@formula(
    "t_block",
    "forward and backward of a block, one micro-batch",
    Unit.SECONDS,
    "products at eta of the peak, other ops at the memory's bandwidth, and a fixed cost of each "
    "kernel",
)
def block_seconds(model: Model, plan: Plan, machine: Machine) -> float:
    forward, again = busiest_forward_flops(model, plan), block_recomputed_flops(model, plan)
    if plan.busiest_rows != 1:
        again = plan.times_again * forward
    products = product_seconds(3 * forward + again, block_width(model, plan), plan, machine)
    others = memory_seconds(block_traffic(model, plan), machine)
    return products + others + kernel_seconds(block_kernels(model, plan), machine)


@formula(
    "t_head",
    "forward and backward of the head, one micro-batch",
    Unit.SECONDS,
    "as of a block; six passes over fp32 logits",
)
def head_seconds(model: Model, plan: Plan, machine: Machine) -> float:
    """fp32 logits are written by the product, read twice for the loss, and their gradient is
    written and read twice. Three products, the norm, and the loss: 5 kernels and the norm's
    backward."""
    x, flops = Symbols(model, plan), 3 * head_forward_flops(model, plan)
    products = product_seconds(flops, _head_width(model, plan), plan, machine)
    others = memory_seconds(24 * (x.T * x.V) / x.t, machine)
    return products + others + kernel_seconds(constant(6), machine)


@formula("t_step", "the optimizer's step", Unit.SECONDS, "limited by the memory's bandwidth")
def optimizer_seconds(traffic: float, machine: Machine) -> float:
    return memory_seconds(traffic, machine)


@formula("MFU", "model FLOPs utilization", Unit.SHARE, "Chowdhery et al. 2022 (PaLM), appendix B")
def model_flops_utilization(
    flops: float, seconds: float, devices: float, machine: Machine
) -> float:
    return flops / (named("N", devices) * named("C", machine.peak) * seconds)
