"""Symbols that many formulas share."""

from ringside.planning.model import Model
from ringside.planning.plan import Plan
from ringside.planning.quantity import named


def tensor_ranks(plan: Plan) -> float:
    """t: the ranks of a tensor-parallel group."""
    return named("t", plan.mesh.size("tp"))


def micro_batch_tokens(plan: Plan) -> float:
    """T: the tokens of a micro-batch on one rank, all its sequences together."""
    return named("T", plan.rank_sequence * plan.micro_batch)


def mean_of_blocks(model: Model, with_experts: float, dense: float = 0.0) -> float:
    """The mean over blocks of which some have an ordinary feed-forward part instead of experts.
    Stages are taken to have equal shares of both."""
    experts = model.experts
    if not experts or experts.dense_blocks == 0:
        return with_experts
    share = named("L_experts / L", (model.layers - experts.dense_blocks) / model.layers)
    return share * with_experts + (1 - share) * dense
