"""Memory: what a rank needs, by the formulas of formulas/, with their sources.

It holds for the trainer of Ringside and for others. Where they differ (Plan.types, Plan.recompute,
Model.own) the plan or the model says so.
"""

from dataclasses import dataclass, field
from typing import List, NamedTuple

from ringside.planning.formulas import state
from ringside.planning.formulas.activations import (
    block_activations,
    blocks_in_flight,
    deferred_activations,
    embedding_activations,
    head_activations,
)
from ringside.planning.formulas.parameters import parameter_count, stage_parameters, whole_block
from ringside.planning.formulas.step_memory import StepMemory
from ringside.planning.formulas.symbols import tensor_ranks
from ringside.planning.model import Model, on_mesh
from ringside.planning.plan import PipelinePart, Plan, pipeline_part
from ringside.planning.quantity import Term, Unit, named, term


class MemoryRow(NamedTuple):
    """Bytes of one kind of memory on one rank. `counted` is the kind of the ledger: "parameters",
    "gradients", "optimizer_state" or "activations"."""

    kind: str  # "masters"
    counted: str
    bytes: float


@dataclass
class RankMemory:
    """Of a rank of the pipeline. `never_together`: each row is the most of its kind; of their sum,
    what is not there at any one moment."""

    name: str  # of its pipeline stages: "first", "middle", "last"; "only" without them
    index: int = 0  # its coordinate along pp
    rows: List[MemoryRow] = field(default_factory=list)
    terms: List[Term] = field(default_factory=list)  # the formulas that led to the rows
    at_start: float = 0.0  # the whole parameters, before Ringside's ZeRO 3 shards them
    never_together: float = 0.0

    def of(self, counted: str) -> float:
        return sum(row.bytes for row in self.rows if row.counted == counted)

    def bytes_of(self, kind: str) -> float:
        """The rows with this name."""
        return sum(row.bytes for row in self.rows if row.kind == kind)

    def total(self) -> float:
        """Bytes at the peak: the rows together, or `at_start` if that is more."""
        return max(sum(row.bytes for row in self.rows) - self.never_together, self.at_start)

    def put(self, line: Term) -> Term:
        self.terms.append(line)
        return line

    def add(self, kind: str, counted: str, line: Term) -> None:
        """Every row is the value of one of the terms."""
        if self.put(line) > 0:
            self.rows.append(MemoryRow(kind, counted, float(line)))


def _add_state(memory: RankMemory, model: Model, plan: Plan, parameters: float) -> None:
    types, (by_parameters, by_gradients, by_optimizer) = plan.types, state.shards_of(plan)
    reduced = parameters
    if plan.gradient_copies > 1:
        reduced = named("n_g", plan.gradient_copies) * parameters
    for kind, counted, line in (
        ("parameters", "parameters", state.parameter_bytes(parameters, types, by_parameters)),
        ("gradients", "gradients", state.gradient_bytes(reduced, types, by_gradients)),
        ("masters", "optimizer_state", state.master_bytes(parameters, types, by_optimizer)),
        ("optimizer state", "optimizer_state", state.moment_bytes(parameters, types, by_optimizer)),
    ):
        memory.add(kind, counted, line)
    # Ringside makes the whole part of the model, and then shards it.
    if model.own and by_parameters > 1:
        memory.at_start = float(state.parameter_bytes(parameters, types, 1))


def _add_under_way(
    memory: RankMemory, model: Model, plan: Plan, part: PipelinePart, parameters: float
) -> None:
    """Units that ZeRO stage 3 gathers and reduces, and buckets of stage 2."""
    t, types, reduced = tensor_ranks(plan), plan.types, None
    if plan.shards_parameters:
        block = memory.put(whole_block(model, t))
        unit = memory.put(state.largest_unit(model, t, part))
        memory.add("gathered units", "parameters", state.gathered_units(block, unit, types))
        reduced = state.reduced_units(block, unit, types)
    elif plan.stage == 2 and plan.state_ranks > 1:
        matrix = memory.put(state.largest_parameter(model, t, part))
        reduced = state.reduced_buckets(parameters, matrix, plan.bucket_bytes, types)
    if reduced is not None:
        memory.add("gradients under way", "gradients", reduced)


def _add_activations(memory: RankMemory, model: Model, plan: Plan, part: PipelinePart) -> None:
    """The formulas of the moment with the most activations become rows. All kinds together may have
    their most at another moment, so their sum may never be there."""
    step = StepMemory(model, plan, part)
    at = step.most_activations()
    memory.put(block_activations(model, plan))
    memory.put(blocks_in_flight(plan, part))
    if at.deferred_blocks > 0:
        memory.put(deferred_activations(model, plan))
    what, blocks = "activations of the blocks", step.of_blocks(at)
    source = "blocks in flight, each with its activations; between I and W, what W needs"
    memory.add("activations", "activations", term("A", what, blocks, Unit.BYTES, source))
    where = "while backward runs through a block"
    if at.at == "head":
        memory.put(head_activations(model, plan))
        where = "at the head"
    elif at.at == "embedding":
        memory.put(embedding_activations(model, plan))
        where = "while backward runs at the embedding"
    source = "planning/formulas/activations.py"
    working = term("A_peak", where, step.working(at), Unit.BYTES, source)
    memory.add("working memory", "activations", working)
    if model.own:
        moving = memory.of("activations") + memory.of("gradients")
        moving += memory.bytes_of("gathered units")
        memory.never_together = max(0.0, moving - step.most())


def memory_of_rank(whole: Model, plan: Plan, index: int) -> RankMemory:
    """Of a rank of the pipeline with this coordinate along pp. Tensor-parallel ranks need the same.
    The plan must be valid for the model. With activations if the model's blocks are known."""
    model, last = on_mesh(whole, plan.mesh.size("ep")), plan.mesh.size("pp") - 1
    ends = {0: "first", last: "last"}
    memory = RankMemory("only" if last == 0 else ends.get(index, "middle"), index)
    if not model.has_blocks:
        held = memory.put(term("P_stage", "all parameters", parameter_count(model)[-1]))
        _add_state(memory, model, plan, held)
        return memory
    part, what = pipeline_part(model, plan, index), "parameters of the stage, on one rank"
    held = stage_parameters(model, tensor_ranks(plan), part)
    held = memory.put(term("P_stage", what, held, source="sum of its parts"))
    _add_state(memory, model, plan, held)
    _add_under_way(memory, model, plan, part, held)
    _add_activations(memory, model, plan, part)
    return memory


def memory_of_stages(model: Model, plan: Plan) -> List[RankMemory]:
    """Of the first stage, one in the middle and the last."""
    last = plan.mesh.size("pp") - 1
    return [memory_of_rank(model, plan, index) for index in sorted({0, min(1, last), last})]
