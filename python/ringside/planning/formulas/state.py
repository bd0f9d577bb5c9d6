"""What a rank keeps between steps: parameters, gradients, masters and moments. And what is whole
for a short time although ZeRO divides it.

Symbols: P parameters of this rank's stage; e, e_g, e_m, e_o bytes of a number; N ranks that divide
it.
"""

from typing import NamedTuple, Tuple

from ringside.planning.formulas.parameters import embedding, last_norm, whole_block
from ringside.planning.formulas.symbols import Symbols
from ringside.planning.model import Model
from ringside.planning.plan import PipelinePart, Plan, Types
from ringside.planning.quantity import Unit, formula, largest, named, smallest

UNITS, BUCKETS = "zero/zero3.hpp", "zero/gradient_shards.hpp"
ZERO = "Rajbhandari et al. 2020 (ZeRO), section 3.1 and figure 1"


class Shards(NamedTuple):
    """Over how many ranks ZeRO divides each kind of state."""

    parameters: float = 1.0
    gradients: float = 1.0
    optimizer: float = 1.0


def shards_of(plan: Plan) -> Shards:
    """Stage 1 divides the optimizer's state, stage 2 the gradients too, stage 3 the parameters."""
    n, stage = float(plan.state_ranks), plan.stage
    return Shards(n if stage >= 3 else 1.0, n if stage >= 2 else 1.0, n if stage >= 1 else 1.0)


def bytes_of_a_number(types: Types) -> Tuple[float, float, float, float]:
    """Of parameters, gradients, masters and moments: e, e_g, e_m and e_o."""
    sizes = (types.parameters, types.gradients, types.masters, types.moments)
    e, e_g, e_m, e_o = map(named, ("e", "e_g", "e_m", "e_o"), sizes)
    return e, e_g, e_m, e_o


@formula("M_parameters", "parameters", Unit.BYTES, ZERO)
def parameter_bytes(parameters: float, types: Types, shards: float) -> float:
    return named("e", types.parameters) * parameters / named("N", shards)


@formula("M_gradients", "gradients", Unit.BYTES, ZERO)
def gradient_bytes(parameters: float, types: Types, shards: float) -> float:
    return named("e_g", types.gradients) * parameters / named("N", shards)


@formula("M_masters", "fp32 masters of the parameters", Unit.BYTES, ZERO)
def master_bytes(parameters: float, types: Types, shards: float) -> float:
    """0 for fp32 parameters."""
    return named("e_m", types.masters) * parameters / named("N", shards)


@formula("M_moments", "AdamW's two moments", Unit.BYTES, ZERO)
def moment_bytes(parameters: float, types: Types, shards: float) -> float:
    return named("e_o", types.moments) * parameters / named("N", shards)


@formula(
    "M_state", "parameters, gradients, masters and moments of the whole model", Unit.BYTES, ZERO
)
def state_of_model(parameters: float, types: Types) -> float:
    """All four of the whole model, on however many devices."""
    e, e_g, e_m, e_o = bytes_of_a_number(types)
    return parameters * (e + e_g + e_m + e_o)


# Whole for a short time: units of parameters, and gradients on their way to who keeps them.


@formula("P_unit", "the largest unit on one rank", source="zero/wrap_policy.hpp")
def largest_unit(model: Model, t: float, part: PipelinePart) -> float:
    """Units are blocks; the embedding; the last norm with the head. In parameters on one of t
    tensor-parallel ranks."""
    block = whole_block(model, t)
    if part.has_head and model.vocabulary > 0:
        return largest(block, embedding(model) / t + last_norm(model))
    if part.has_embedding and model.vocabulary > 0:
        return largest(block, embedding(model) / t)
    return block


@formula("P_largest", "the largest matrix on one rank", source="ddp/buckets.hpp")
def largest_parameter(model: Model, t: float, part: PipelinePart) -> float:
    x = Symbols(model)
    matrix = largest(x.f, x.q)
    if part.has_embedding or part.has_head:
        matrix = largest(x.V, matrix)
    return x.d * matrix / t


@formula("M_units", "parameters of two units, gathered", Unit.BYTES, UNITS)
def gathered_units(block: float, unit: float, types: Types) -> float:
    """Two neighbouring units are whole while they run, the largest and a block."""
    return named("e", types.parameters) * (block + unit)


@formula("M_reduced", "gradients of units, until they are reduced", Unit.BYTES, UNITS)
def reduced_units(block: float, unit: float, types: Types) -> float:
    """One unit, the copy that backward makes, and two blocks that are being reduced."""
    return named("e_g", types.gradients) * 2 * (block + unit)


@formula("M_reduced", "gradients in buckets, until they are reduced", Unit.BYTES, BUCKETS)
def reduced_buckets(parameters: float, matrix: float, bucket_bytes: float, types: Types) -> float:
    """ZeRO stage 2: two buckets of gradients are being reduced and one is being filled, which is as
    large as the largest parameter if that is larger; and the gradient that backward adds to it."""
    g, bucket = named("e_g", types.gradients), named("b", bucket_bytes)
    return g * matrix + smallest(largest(bucket, g * matrix) + 2 * bucket, g * parameters)
