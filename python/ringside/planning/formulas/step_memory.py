"""StepMemory: what a rank holds at every moment of a step beside parameters and the optimizer's
state, in bytes."""

from typing import Dict, Tuple

from ringside.planning.formulas.activations import (
    block_activations,
    converted_head,
    deferred_activations,
    embedding_activations,
    forward_memory,
    head_activations,
    kept_head,
    working_memory,
)
from ringside.planning.formulas.parameters import (
    down_projection,
    embedding,
    last_norm,
    stage_parameters,
    whole_block,
)
from ringside.planning.formulas.state import shards_of
from ringside.planning.formulas.symbols import tensor_ranks
from ringside.planning.model import Model
from ringside.planning.plan import Moment, PipelinePart, Plan
from ringside.planning.quantity import constant, formula_of, named


class StepMemory:
    """The plan must be valid for the model, whose blocks are known."""

    def __init__(self, model: Model, plan: Plan, part: PipelinePart):
        self.model, self.plan, self.part, t = model, plan, part, tensor_ranks(plan)
        # Ringside frees gradients after a step, unless they lie in buckets: the first backward then
        # starts without any, when most activations are in flight.
        self.gradients_grow = (
            model.own and plan.state_ranks == 1 and plan.copies == 1 and plan.gradient_copies == 1
        )
        self.block = block_activations(model, plan)
        self.deferred, self.kept = deferred_activations(model, plan), kept_head(model, plan)
        self.parameters_of_block = float(whole_block(model, t))
        self.vocabulary = float(embedding(model)) / float(t) if model.vocabulary > 0 else 0.0
        self.down_projection = float(down_projection(model, t))
        self.all_parameters = float(stage_parameters(model, t, part))
        self.norm, self.gradient_shards = float(last_norm(model)), shards_of(plan).gradients
        self.shards_parameters = plan.shards_parameters
        self.reduces_buckets = plan.stage == 2 and plan.state_ranks > 1
        self.computations: Dict[Tuple[str, bool, bool], float] = {}

    def of_blocks(self, at: Moment) -> float:
        """Activations of the blocks in flight."""
        held = named("L_held", at.blocks) * self.block
        if at.deferred_blocks == 0:
            return held
        deferred = named("L_W", at.deferred_blocks) * self.deferred
        return deferred if at.blocks == 0 else held + deferred

    def working(self, at: Moment) -> float:
        """What else there is at the moment: what its action computes with; what is kept of heads;
        and gradients of head and embedding that wait for W as they are, because of the hooks that
        reduce gradients."""
        total = self._in_computation(at)
        if at.heads > 0 and self.kept > 0:
            total = named("m_head", at.heads) * self.kept + total
        waiting = at.deferred_heads + at.deferred_embeddings
        if waiting > 0 and self.model.own and not self.gradients_grow:
            e, vocabulary = self.plan.types.activations, named("P_vocabulary", self.vocabulary)
            total = named("m_W", waiting) * named("e", e) * vocabulary + total
        return total

    def _in_computation(self, at: Moment) -> float:
        """The formula depends on little of the moment, and is asked for often."""
        key = (at.at, at.is_at_head, at.is_first)
        if key not in self.computations:
            self.computations[key] = self._computation(at)
        return self.computations[key]

    def _computation(self, at: Moment) -> float:
        model, plan, remain = self.model, self.plan, self.gradients_grow and at.is_first
        if at.at == "head":
            head = head_activations(model, plan)
            converts = model.own and plan.types.parameters == 2
            return head + converted_head(model, plan) if converts else head
        if at.at == "block":
            return working_memory(model, plan, at.is_at_head, "first" if remain else "later")
        if at.at == "block_input":
            return working_memory(model, plan, at.is_at_head, "input")
        if model.kind != "llama" or at.at == "weights" and remain:
            return constant(0)
        if at.at == "forward":
            return forward_memory(model, plan)
        if at.at == "embedding":
            return formula_of(embedding_activations(model, plan))
        return named("e", plan.types.activations) * down_projection(model, tensor_ranks(plan))

    def _activations(self, at: Moment) -> float:
        return float(self.of_blocks(at)) + float(self.working(at))

    def _gradients(self, at: Moment) -> float:
        each, part = self.plan.types.gradients, self.part
        if not self.gradients_grow:
            return each * self.plan.gradient_copies * self.all_parameters / self.gradient_shards
        tied_here = self.model.tied_head and part.has_embedding and part.has_head
        numbers = at.gradients * self.parameters_of_block
        if at.has_head_gradient:
            numbers += self.vocabulary + self.norm
        if at.has_embedding_gradient and not tied_here:
            numbers += self.vocabulary
        if at.is_first and at.at in ("block", "weights"):
            numbers += self.down_projection
        return each * min(numbers, self.all_parameters)

    def most_activations(self) -> Moment:
        """The moment with the most activations."""
        return max(self.part.moments, key=self._activations)

    def most(self) -> float:
        """The most of activations, gradients and gathered parameters together."""
        return max(
            self._activations(at) + self._gradients(at) + self._under_way(at)
            for at in self.part.moments
        )

    def _under_way(self, at: Moment) -> float:
        """Gathered parameters and gradients on their way. A network may be slow, so as many
        gradients are counted as may be there."""
        plan, part, has_units = self.plan, self.part, self.shards_parameters
        if not has_units and not self.reduces_buckets:
            return 0.0
        g, e = plan.types.gradients, plan.types.parameters
        vocabulary, block = g * self.vocabulary, self.parameters_of_block
        # Buckets of several matrices, or of a unit.
        bucket = (
            g * block
            if has_units
            else min(max(plan.bucket_bytes, g * self.down_projection), g * part.blocks * block)
        )
        gathered = 0.0
        if has_units:
            if at.at == "head":
                gathered = e * self.vocabulary
            elif at.at in ("forward", "weights"):
                gathered = e * block
            elif at.at in ("block", "block_input"):
                gathered = e * block * (2 if at.is_at_start and part.blocks > 1 else 1)
        # At most two are being reduced, also those of the micro-batch before, and one is filled.
        began = at.gradients > 0 and not at.is_first
        edge = max(vocabulary, bucket) if part.has_embedding or part.has_head else bucket
        if at.at in ("block", "weights"):
            if not at.is_at_start:
                return gathered + min(3.0, part.blocks * (1 if has_units else 3)) * bucket
            before = vocabulary if at.is_at_head else edge if began else 0.0
            return gathered + before + (2 if began else 1) * bucket
        if at.at == "embedding":
            return gathered + vocabulary + 2 * bucket
        return gathered + (edge + bucket if began else 0.0)
