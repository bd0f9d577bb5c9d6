"""The symbols of the formulas: what each is, and its value for a model and a plan.

    x = Symbols(model, plan)
    2 * x.T * x.d * x.V        a formula that prints as 2 T d V

What one file alone uses, it names itself.
"""

from typing import Callable, Dict, Optional

from ringside.planning.model import Experts, Model
from ringside.planning.plan import Plan
from ringside.planning.quantity import named


def _experts(model: Model) -> Experts:
    assert model.experts is not None
    return model.experts


OF_MODEL: Dict[str, Callable[[Model], float]] = {
    "d": lambda model: model.d_model,  # width
    "h": lambda model: model.d_model,  # the same, as in Korthikanti et al. 2022
    "f": lambda model: model.d_ff,  # width inside the feed-forward part, or an expert
    "f_d": lambda model: model.dense_ff,  # of blocks without experts beside others with them
    "q": lambda model: model.q_width,  # width of all query heads
    "kv": lambda model: model.kv_width,  # of all key heads, and of all value heads
    "a": lambda model: model.heads,
    "d_head": lambda model: model.head_size,
    "V": lambda model: model.vocabulary,
    "L": lambda model: model.layers,  # blocks
    "E": lambda model: _experts(model).routed,  # experts of a block
    "E_s": lambda model: _experts(model).shared,  # experts that every token passes
    "f_e": lambda model: _experts(model).d_ff,  # width inside an expert
    "K": lambda model: model.per_token,  # experts that compute a token
}
OF_PLAN: Dict[str, Callable[[Plan], float]] = {
    "s": lambda plan: plan.sequence,  # tokens of a sequence
    "b": lambda plan: plan.micro_batch,  # sequences of a micro-batch
    "T": lambda plan: plan.rank_tokens,  # tokens of a micro-batch on one rank
    "m": lambda plan: plan.micro_batches,  # of one data-parallel rank and step
    "t": lambda plan: plan.mesh.size("tp"),  # tensor-parallel ranks
    "p": lambda plan: plan.mesh.size("pp"),
    "c": lambda plan: plan.mesh.size("cp"),
    "e": lambda plan: plan.types.activations,  # bytes of a number
    "e_g": lambda plan: plan.types.gradients,
}


class Symbols:
    """Each symbol as an attribute. Those of a plan only with a plan."""

    def __init__(self, model: Optional[Model], plan: Optional[Plan] = None):
        self.model, self.plan = model, plan

    def __getattr__(self, symbol: str) -> float:
        if symbol in OF_MODEL:
            value = named(symbol, OF_MODEL[symbol](self.model))
        elif symbol in OF_PLAN:
            value = named(symbol, OF_PLAN[symbol](self.plan))
        else:
            raise AttributeError(f"no formula has the symbol {symbol}")
        setattr(self, symbol, value)  # the next time it is there
        return value

    @property
    def kv_held(self) -> float:
        """kv of all ranks: each has at least one head, so more ranks than heads share copies."""
        return named(
            "kv", max(self.model.kv_width, self.model.head_size * self.plan.mesh.size("tp"))
        )


def tensor_ranks(plan: Plan) -> float:
    """t: the ranks of a tensor-parallel group."""
    return Symbols(None, plan).t


def micro_batch_tokens(plan: Plan) -> float:
    """T: the tokens of a micro-batch on one rank, all its sequences together."""
    return Symbols(None, plan).T


def mean_of_blocks(model: Model, with_experts: float, dense: float = 0.0) -> float:
    """The mean over blocks of which some have an ordinary feed-forward part instead of experts.
    Stages are taken to have equal shares of both."""
    experts = model.experts
    if not experts or experts.dense_blocks == 0:
        return with_experts
    share = named("L_experts / L", (model.layers - experts.dense_blocks) / model.layers)
    return share * with_experts + (1 - share) * dense
