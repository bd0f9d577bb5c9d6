"""Which parameters ZeRO stage 3 gathers in a step of a pipeline: a unit that is still whole from
the action before is not gathered again, and the next unit may belong to another stage.

Follows zero/zero3.cpp use by use, without communication.
"""

from typing import List, NamedTuple, Set

from ringside.planning.formulas.parameters import embedding, last_norm, whole_block
from ringside.planning.formulas.symbols import tensor_ranks
from ringside.planning.model import Model
from ringside.planning.plan import Plan, schedule_of_rank
from ringside.planning.schedules import Schedule, layers_of_stage

EMBEDDING, HEAD, LAST_NORM = -1, -2, -3  # other units are the number of a block


class UnitGathers(NamedTuple):
    """Numbers of one tensor rank in a step, whole."""

    forward: float
    backward: float


class _Use(NamedTuple):
    """Something whose forward reads a unit: the embedding, a block, or the last norm with the head.
    Where ranks divide a model, its vocabulary's matrices are gathered alone, so the head without
    the norm."""

    unit: int
    parameters: float
    stage: int
    backward_reads: bool = True


class _Uses:
    """In the order of forward."""

    def __init__(self, uses: List[_Use]):
        self.uses = uses
        self.whole: Set[int] = set()  # units
        self.gathered = {1: 0.0, -1: 0.0}  # numbers, by direction

    def forward(self, use: int, has_history: bool) -> None:
        self._enter(use, 1, True)
        is_last = use + 1 == len(self.uses)
        if is_last and has_history:
            return
        if is_last or self.uses[use + 1].unit != self.uses[use].unit:
            self.whole.discard(self.uses[use].unit)

    def forward_again(self, use: int) -> None:
        self._enter(use, -1, True)

    def backward(self, use: int) -> None:
        self._enter(use, -1, self.uses[use].backward_reads)

    def _enter(self, use: int, direction: int, reads: bool) -> None:
        """Frees all but what this use and the next one read, and gathers these."""
        needed = [self.uses[use]] if reads else []
        end = len(self.uses) if direction > 0 else -1
        for other in map(self.uses.__getitem__, range(use + direction, end, direction)):
            if direction < 0 and not other.backward_reads:
                continue
            if reads and other.unit == self.uses[use].unit:
                continue
            needed.append(other)
            break
        self.whole &= {each.unit for each in needed}
        for each in needed:
            if each.unit not in self.whole:
                self.whole.add(each.unit)
                self.gathered[direction] += each.parameters


def _uses_of(model: Model, plan: Plan, schedule: Schedule, rank: int) -> List[_Use]:
    """A tied matrix that embedding and head of one rank share belongs to the unit of the head."""
    t = tensor_ranks(plan)
    is_alone = plan.mesh.size("tp") > 1 or plan.mesh.size("pp") > 1
    block, matrix = float(whole_block(model, t)), float(embedding(model)) / float(t)
    norm = float(last_norm(model))
    last = schedule.stages - 1
    head = _Use(HEAD, matrix if is_alone else matrix + norm, last)
    has_embedding, has_head = schedule.rank_of[0] == rank, schedule.rank_of[-1] == rank
    uses = []
    if has_embedding:
        shares = model.tied_head and has_head
        uses.append(head._replace(stage=0) if shares else _Use(EMBEDDING, matrix, 0, False))
    for stage in schedule.stages_of(rank):
        layers = layers_of_stage(model.layers, schedule.stages, stage)
        uses += [_Use(layer, block, stage) for layer in layers]
    if has_head and is_alone:
        uses.append(_Use(LAST_NORM, norm, last))
    return uses + [head] if has_head else uses


def _compute_again(uses: _Uses, use: int, block: int, blocks: int, plan: Plan) -> None:
    """If `use`, which is block `block` of `blocks` in its stage, is the last of a group: backward
    first computes the group again."""

    def run(size: int, begins_at: int, end: int) -> range:
        first = begins_at + (block - begins_at) // size * size
        group = range(first, min(first + size, end))
        if block + 1 == group.stop:
            for each in group:
                uses.forward_again(use - (block - each))
        return group

    group = run(plan.group_of(blocks), 0, blocks)
    if plan.recompute.inner > 0:
        run(plan.recompute.inner, group.start, group.stop)


def unit_gathers(model: Model, plan: Plan, rank: int) -> UnitGathers:
    """Of the rank with this coordinate along pp."""
    schedule, again = schedule_of_rank(plan, rank), plan.recompute.kind == "full"
    all_uses = _uses_of(model, plan, schedule, rank)
    uses = _Uses(all_uses)
    for kind, stage, _ in schedule.actions[rank]:
        layers = layers_of_stage(model.layers, schedule.stages, stage)
        here = [i for i, use in enumerate(all_uses) if use.stage == stage]
        if kind == "F":
            for use in here:
                uses.forward(use, not again or all_uses[use].unit < 0)
        if kind in ("B", "I"):
            for use in reversed(here):
                block = all_uses[use].unit - layers.start
                if again and block >= 0:
                    _compute_again(uses, use, block, len(layers), plan)
                uses.backward(use)
    scale = plan.micro_batches / schedule.micro_batches
    return UnitGathers(scale * uses.gathered[1], scale * uses.gathered[-1])
