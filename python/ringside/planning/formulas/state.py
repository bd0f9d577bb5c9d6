"""What a rank keeps between steps: parameters, gradients, masters and moments. And what is whole
for a short time although ZeRO divides it.

Symbols: P parameters of this rank's stage; e, e_g, e_m, e_o bytes of a number; N ranks that divide
it.
"""

from typing import NamedTuple

from ringside.planning.formulas.parameters import embedding, last_norm, whole_block
from ringside.planning.model import Model
from ringside.planning.plan import PipelinePart, Plan, Types
from ringside.planning.quantity import Term, Unit, largest, named, smallest, term

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


def parameter_bytes(parameters: float, types: Types, shards: float) -> Term:
    return term(
        "M_parameters",
        "parameters",
        named("e", types.parameters) * parameters / named("N", shards),
        Unit.BYTES,
        ZERO,
    )


def gradient_bytes(parameters: float, types: Types, shards: float) -> Term:
    return term(
        "M_gradients",
        "gradients",
        named("e_g", types.gradients) * parameters / named("N", shards),
        Unit.BYTES,
        ZERO,
    )


def master_bytes(parameters: float, types: Types, shards: float) -> Term:
    """0 for fp32 parameters."""
    return term(
        "M_masters",
        "fp32 masters of the parameters",
        named("e_m", types.masters) * parameters / named("N", shards),
        Unit.BYTES,
        ZERO,
    )


def moment_bytes(parameters: float, types: Types, shards: float) -> Term:
    return term(
        "M_moments",
        "AdamW's two moments",
        named("e_o", types.moments) * parameters / named("N", shards),
        Unit.BYTES,
        ZERO,
    )


def state_of_model(parameters: float, types: Types) -> Term:
    """All four of the whole model, on however many devices."""
    each = (
        named("e", types.parameters)
        + named("e_g", types.gradients)
        + named("e_m", types.masters)
        + named("e_o", types.moments)
    )
    return term(
        "M_state",
        "parameters, gradients, masters and moments of the whole model",
        parameters * each,
        Unit.BYTES,
        ZERO,
    )


# Whole for a short time: units of parameters, and gradients on their way to who keeps them.


def largest_unit(model: Model, t: float, part: PipelinePart) -> Term:
    """Units are blocks; the embedding; the last norm with the head. In parameters on one of t
    tensor-parallel ranks."""
    block = whole_block(model, t)
    unit: float = block
    if part.has_embedding and model.vocabulary > 0:
        unit = largest(unit, embedding(model) / t)
    if part.has_head and model.vocabulary > 0:
        unit = largest(block, embedding(model) / t + last_norm(model))
    return term("P_unit", "the largest unit on one rank", unit, source="zero/wrap_policy.hpp")


def largest_parameter(model: Model, t: float, part: PipelinePart) -> Term:
    d, f, q = named("d", model.d_model), named("f", model.d_ff), named("q", model.q_width)
    matrix = largest(f, q)
    if part.has_embedding or part.has_head:
        matrix = largest(named("V", model.vocabulary), matrix)
    return term(
        "P_largest", "the largest matrix on one rank", d * matrix / t, source="ddp/buckets.hpp"
    )


def gathered_units(block: float, unit: float, types: Types) -> Term:
    """Two neighbouring units are whole while they run, the largest and a block."""
    return term(
        "M_units",
        "parameters of two units, gathered",
        named("e", types.parameters) * (block + unit),
        Unit.BYTES,
        "zero/zero3.hpp",
    )


def reduced_units(block: float, unit: float, types: Types) -> Term:
    """One unit, the copy that backward makes, and two blocks that are being reduced."""
    return term(
        "M_reduced",
        "gradients of units, until they are reduced",
        named("e_g", types.gradients) * 2 * (block + unit),
        Unit.BYTES,
        "zero/zero3.hpp",
    )


def reduced_buckets(parameters: float, matrix: float, bucket_bytes: float, types: Types) -> Term:
    """ZeRO stage 2: two buckets of gradients are being reduced and one is being filled, which is as
    large as the largest parameter if that is larger; and the gradient that backward adds to it."""
    g, bucket = named("e_g", types.gradients), named("b", bucket_bytes)
    return term(
        "M_reduced",
        "gradients in buckets, until they are reduced",
        g * matrix + smallest(largest(bucket, g * matrix) + 2 * bucket, g * parameters),
        Unit.BYTES,
        "zero/gradient_shards.hpp",
    )
