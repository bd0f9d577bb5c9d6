"""The symbols of the formulas: what each is, and its value for a model and a plan.

    x = Symbols(model, plan)
    2 * x.T * x.d * x.V        a formula that prints as 2 T d V

What one file alone uses, it names itself.
"""

from typing import Callable, Optional

from ringside.planning.model import Experts, Model
from ringside.planning.plan import Plan
from ringside.planning.quantity import named


def _experts(model: Model) -> Experts:
    assert model.experts is not None
    return model.experts


class _Symbol:
    """An attribute whose value is found when it is first read."""

    def __init__(self, value: Callable[[Model, Plan], float], symbol: str = ""):
        self.value, self.symbol = value, symbol

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.symbol = name, self.symbol or name

    def __get__(self, x: "Symbols", owner: type) -> float:
        value = x.__dict__[self.name] = named(self.symbol, self.value(x.model, x.plan))
        return value


class Symbols:
    """Those of a plan only with a plan, those of a model only with a model."""

    d = _Symbol(lambda model, plan: model.d_model)  # width
    h = _Symbol(lambda model, plan: model.d_model)  # the same, as in Korthikanti et al. 2022
    f = _Symbol(lambda model, plan: model.d_ff)  # width inside the feed-forward part, or an expert
    f_d = _Symbol(
        lambda model, plan: model.dense_ff
    )  # of blocks without experts beside others with them
    q = _Symbol(lambda model, plan: model.q_width)  # width of all query heads
    kv = _Symbol(lambda model, plan: model.kv_width)  # of all key heads, and of all value heads
    a = _Symbol(lambda model, plan: model.heads)
    d_head = _Symbol(lambda model, plan: model.head_size)
    V = _Symbol(lambda model, plan: model.vocabulary)
    L = _Symbol(lambda model, plan: model.layers)  # blocks
    E = _Symbol(lambda model, plan: _experts(model).routed)  # experts of a block
    E_s = _Symbol(lambda model, plan: _experts(model).shared)  # experts that every token passes
    f_e = _Symbol(lambda model, plan: _experts(model).d_ff)  # width inside an expert
    K = _Symbol(lambda model, plan: model.per_token)  # experts that compute a token
    s = _Symbol(lambda model, plan: plan.sequence)  # tokens of a sequence
    b = _Symbol(lambda model, plan: plan.micro_batch)  # sequences of a micro-batch
    T = _Symbol(lambda model, plan: plan.rank_tokens)  # tokens of a micro-batch on one rank
    m = _Symbol(lambda model, plan: plan.micro_batches)  # of one data-parallel rank and step
    t = _Symbol(lambda model, plan: plan.mesh.size("tp"))  # tensor-parallel ranks
    p = _Symbol(lambda model, plan: plan.mesh.size("pp"))
    c = _Symbol(lambda model, plan: plan.mesh.size("cp"))
    e = _Symbol(lambda model, plan: plan.types.activations)  # bytes of a number
    e_g = _Symbol(lambda model, plan: plan.types.gradients)
    # kv of all ranks: each has at least one head, so more ranks than heads share copies.
    kv_held = _Symbol(
        lambda model, plan: max(model.kv_width, model.head_size * plan.mesh.size("tp")), "kv"
    )

    def __init__(self, model: Optional[Model], plan: Optional[Plan] = None):
        self.model, self.plan = model, plan


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
