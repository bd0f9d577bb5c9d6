"""Plan: how a model is trained: on which mesh, with which schedule, batch, types and savings. And
what a rank of its pipeline holds at every moment of a step, counted on the rank's actions."""

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Dict, Iterator, List, NamedTuple, Set, Tuple

from ringside.command_line import did_you_mean
from ringside.library import RingsideError
from ringside.planning.json_fields import require
from ringside.planning.mesh import Mesh
from ringside.planning.model import Model
from ringside.planning.schedules import (
    GENERATORS,
    UNLIMITED,
    Action,
    Schedule,
    actions_of,
    layers_of_stage,
)

RECOMPUTE_NAMES = ("none", "selective", "full")
EXCHANGES = ("all_gather", "ring", "ulysses")  # of context parallel: --context
TOKEN_ORDERS = ("contiguous", "zigzag")


@dataclass(frozen=True)
class Recomputation:
    """Activations that backward computes again. Of full recomputation, in groups of `blocks`, with
    groups of `inner` in them; 0: there are none. Chen et al. 2016, sections 3 and 4."""

    kind: str = "none"  # one of RECOMPUTE_NAMES
    blocks: int = 0
    inner: int = 0

    def text(self) -> str:
        if self.inner > 0:
            return f"nested={self.blocks},{self.inner}"
        return f"every={self.blocks}" if self.blocks > 1 else self.kind


def recomputation_from(text: str) -> Recomputation:
    """Reads --recompute: "none", "selective", "full", "every=4", "nested=8,2"."""
    if text in RECOMPUTE_NAMES:
        return Recomputation(text, 1 if text == "full" else 0)
    every = re.fullmatch(r"every=(\d+)", text, re.ASCII)
    nested = re.fullmatch(r"nested=(\d+),(\d+)", text, re.ASCII)
    blocks, inner = (int(every[1]), 0) if every else map(int, nested.groups()) if nested else (0, 0)
    require(
        blocks >= 1 and (every or 1 <= inner < blocks),
        "expected none, selective, full, "
        "every=K for groups of K blocks, or nested=K1,K2 for groups of K1 with smaller ones of "
        f"K2 in them; got '{text}'",
    )
    return Recomputation("full", blocks, inner)


@dataclass(frozen=True)
class Types:
    """Bytes of one number."""

    parameters: float = 2.0
    gradients: float = 2.0
    activations: float = 2.0
    adamw: bool = True

    @property
    def masters(self) -> float:
        """fp32 copies of 16-bit parameters, which the optimizer updates."""
        return 4.0 if self.parameters < 4 else 0.0

    @property
    def moments(self) -> float:
        """AdamW: two numbers, at least in fp32. SGD keeps nothing."""
        return 2 * max(4.0, self.parameters) if self.adamw else 0.0


@dataclass(frozen=True)
class Plan:
    mesh: Mesh = Mesh()  # dp and fsdp are both data parallel; fsdp shards the parameters
    schedule: str = "1f1b"  # of the pipeline: a name of the catalogue, or "csv:FILE"
    chunks: int = 1  # of a stage: v of the interleaved schedules
    micro_batch: int = 1  # sequences
    micro_batches: int = 1  # of one data-parallel rank and step
    sequence: int = 1024  # tokens
    exchange: str = "ring"  # of the axis cp, one of EXCHANGES
    token_order: str = "zigzag"
    zero: int = 0  # stage of ZeRO; fsdp without a stage is stage 3
    recompute: Recomputation = Recomputation()
    sequence_parallel: bool = False
    imbalance: float = 1.0  # rows of the busiest rank of ep, relative to the mean
    types: Types = Types()
    fused_gradients: bool = False  # products add to the gradients of earlier micro-batches
    gradient_copies: float = 1.0  # 2 where they are reduced in a buffer of their own
    bucket_bytes: float = 25e6  # of gradients that ZeRO stage 2 reduces
    device: str = "cpu"  # where Ringside trains it
    # How many axes of a torus carry an axis of the mesh: FSDP and tensor parallel.
    torus_fsdp: float = 1.0
    torus_tp: float = 1.0

    # ZeRO divides the state over the axis fsdp, or dp in a mesh without it, and over cp, whose
    # ranks hold the same parameters. In a mesh with fsdp the ranks of dp hold copies of its shards.
    @property
    def has_fsdp(self) -> bool:
        return self.mesh.size("fsdp") > 1

    @property
    def state_axis(self) -> str:
        if self.has_fsdp:
            return "fsdp"
        return "dp" if self.mesh.size("dp") > 1 or self.mesh.size("cp") == 1 else "cp"

    @property
    def state_ranks(self) -> int:
        return self.mesh.size("fsdp" if self.has_fsdp else "dp") * self.mesh.size("cp")

    @property
    def stage(self) -> int:
        return 3 if self.zero == 0 and self.has_fsdp else self.zero

    @property
    def shards_parameters(self) -> bool:
        return self.stage == 3 and self.state_ranks > 1

    @property
    def copies(self) -> int:
        return self.mesh.size("dp") if self.has_fsdp else 1

    @property
    def times_again(self) -> int:
        """How often backward computes a block again."""
        if self.recompute.kind != "full":
            return 0
        return 2 if self.recompute.inner > 0 else 1

    def group_of(self, blocks: int) -> int:
        """Blocks of a stage that it computes again together."""
        return min(max(self.recompute.blocks, 1), max(1, blocks))

    @property
    def busiest_rows(self) -> float:
        return self.imbalance if self.mesh.size("ep") > 1 else 1.0

    @property
    def rank_sequence(self) -> int:
        """Tokens of a sequence on one rank, outside of the parts that sequence parallel divides."""
        return self.sequence // self.mesh.size("cp")

    @property
    def rank_tokens(self) -> int:
        """Tokens of a micro-batch on one rank, all its sequences together."""
        return self.rank_sequence * self.micro_batch

    @property
    def batch(self) -> int:
        """Sequences of a step, over all ranks."""
        return self.mesh.data_ranks() * self.micro_batch * self.micro_batches


# The pipeline's schedule.


def schedule_names() -> List[str]:
    return list(GENERATORS)


def takes_chunks(schedule: str) -> bool:
    """Whether a schedule of the catalogue takes any number of stages per rank: --chunks."""
    return schedule in GENERATORS and GENERATORS[schedule].most == UNLIMITED


def stages_per_rank(plan: Plan) -> int:
    """As the schedule of the catalogue divides a rank; 0 if it is a file."""
    if takes_chunks(plan.schedule):
        return plan.chunks
    return GENERATORS[plan.schedule].default if plan.schedule in GENERATORS else 0


def schedule_from_file(plan: Plan) -> Schedule:
    """Reads a plan's csv:FILE. The error says what is wrong if it is not for the plan's ranks and
    micro-batches."""
    from ringside.planning import schedule_file  # few plans have a file

    return schedule_file.read(plan.schedule, plan.mesh.size("pp"), plan.micro_batches)


def placement_of(plan: Plan) -> Tuple[int, ...]:
    """The pipeline rank of each stage."""
    p = plan.mesh.size("pp")
    if p == 1:
        return (0,)
    if plan.schedule in GENERATORS:
        return GENERATORS[plan.schedule].placement(p, stages_per_rank(plan))
    return schedule_from_file(plan).rank_of


def schedule_of_rank(plan: Plan, rank: int) -> Schedule:
    """The schedule with the actions of one rank only, and of as many micro-batches as show what
    repeats: every schedule of the catalogue has its steady state by 8 p micro-batches; without a
    pipeline it has it by the second one."""
    p, m = plan.mesh.size("pp"), plan.micro_batches
    if p == 1:
        return _of_rank("1f1b", 1, 1, min(m, 2), 0)
    if plan.schedule not in GENERATORS:
        return schedule_from_file(plan)
    return _of_rank(plan.schedule, p, stages_per_rank(plan), min(m, 8 * p), rank)


@lru_cache(maxsize=4096)
def _of_rank(name: str, p: int, v: int, m: int, rank: int) -> Schedule:
    actions: List[Tuple[Action, ...]] = [()] * p
    actions[rank] = actions_of(name, p, v, m, rank)
    return Schedule(m, GENERATORS[name].placement(p, v), tuple(actions))


# What a rank of the pipeline holds.


class Moment(NamedTuple):
    """What a rank holds while one of its actions runs. Blocks and micro-batches are those of all
    its stages together. `at` is

        forward       F has just ended           block_input   I, in a block
        head          F of the last stage, at    embedding     B or I of the first stage, at its
                      the loss                                 end
        block         B, in a block              weights       W
    """

    at: str = ""
    blocks: float = 0.0  # between F and B or I: activations
    deferred_blocks: float = 0.0  # between I and W: what W needs
    heads: float = 0.0  # micro-batches between F and B or I of the last stage
    deferred_heads: float = 0.0  # micro-batches between I and W
    deferred_embeddings: float = 0.0
    gradients: float = 0.0  # whose gradients exist in this step, in blocks
    has_head_gradient: bool = False
    has_embedding_gradient: bool = False
    is_first: bool = False  # the first B or W of its stage, which makes the gradients
    is_at_head: bool = False  # of the last stage
    is_at_start: bool = False  # in the first block that backward enters; otherwise in the last one


@dataclass(frozen=True, eq=False)
class PipelinePart:
    """The part of the model that a rank of the pipeline has, and what it holds at every moment of a
    step; of equal moments, the first."""

    blocks: float = 0.0
    has_embedding: bool = True
    has_head: bool = True
    blocks_in_flight: float = 0.0  # of all stages and micro-batches, between F and B or W: the most
    messages: float = 0.0  # to stages on other ranks, for each micro-batch
    moments: Tuple[Moment, ...] = ()


class _Holdings:
    """Follows the actions of a rank, and notes what it holds in each. `others` micro-batches are in
    flight in each stage until its last B."""

    def __init__(
        self, schedule: Schedule, layers: int, others: float, blocks: float, has_head: bool
    ):
        self.schedule, self.layers, self.others = schedule, layers, others
        self.now = Moment(blocks=others * blocks, heads=others * has_head)
        self.most = 0.0
        self.moments: Dict[Moment, None] = {}
        self.begun: Set[int] = set()  # stages of which a B or W has begun

    def change(self, **by: float) -> None:
        """Adds to what the rank holds."""
        after = {name: getattr(self.now, name) + more for name, more in by.items()}
        self.now = self.now._replace(**after)

    def note(self, at: str, is_at_start: bool = False) -> None:
        self.most = max(self.most, self.now.blocks + self.now.deferred_blocks)
        self.moments.setdefault(self.now._replace(at=at, is_at_start=is_at_start))

    def run(self, action: Action) -> None:
        kind, stage, micro_batch = action
        here = len(layers_of_stage(self.layers, self.schedule.stages, stage))
        is_last, is_input, is_embedding = stage + 1 == self.schedule.stages, kind == "I", stage == 0
        is_first = kind in ("B", "W") and stage not in self.begun
        self.now = self.now._replace(is_at_head=is_last, is_first=is_first)
        if kind == "F":
            self.change(blocks=here)
            self.note("head" if is_last else "forward")
            self.change(heads=is_last)
            return
        if not is_input:
            self.begun.add(stage)
        if kind == "W":
            self.in_blocks("weights", here, deferred=-1, done=0)
            self.change(deferred_heads=-is_last, deferred_embeddings=-is_embedding)
            return
        # B or I, from the last block to the first, and where it is here, the embedding.
        self.change(heads=-is_last, deferred_heads=is_last and is_input)
        self.now = self.now._replace(has_head_gradient=self.now.has_head_gradient or is_last)
        self.in_blocks("block_input" if is_input else "block", here, int(is_input), 1)
        if is_embedding:
            self.note("embedding")
            self.now = self.now._replace(has_embedding_gradient=True)
        if is_input:
            self.change(deferred_embeddings=is_embedding)
        elif micro_batch + 1 == self.schedule.micro_batches:
            self.change(blocks=-self.others * here, heads=-self.others * is_last)

    def in_blocks(self, at: str, here: int, deferred: int, done: int) -> None:
        """Between the first and the last block all that is held changes evenly."""
        if here == 0:  # a stage of the embedding or of the head alone
            return
        self.note(at, is_at_start=True)
        for blocks in (here - 1, 1):
            made = blocks * self.now.is_first
            self.change(blocks=-done * blocks, deferred_blocks=deferred * blocks, gradients=made)
            if at:
                self.note(at)
            at = ""


@lru_cache(maxsize=4096)
def _part_of(layers: int, schedule: Schedule, rank: int, others: float) -> PipelinePart:
    stages = schedule.stages_of(rank)
    blocks = float(sum(len(layers_of_stage(layers, schedule.stages, stage)) for stage in stages))
    messages = sum(
        0 <= other < schedule.stages and schedule.rank_of[other] != rank
        for stage in stages
        for other in (stage - 1, stage + 1)
    )
    has_embedding, has_head = schedule.rank_of[0] == rank, schedule.rank_of[-1] == rank
    holdings = _Holdings(schedule, layers, others, blocks, has_head)
    for action in schedule.actions[rank]:
        holdings.run(action)
    most, moments = holdings.most, tuple(holdings.moments)
    return PipelinePart(blocks, has_embedding, has_head, most, float(messages), moments)


def pipeline_part(model: Model, plan: Plan, rank: int) -> PipelinePart:
    """The part of the model that the rank with this coordinate along pp has."""
    schedule = schedule_of_rank(plan, rank)
    # No later moment holds more, but where all go forward first, all others that have done so.
    grows = plan.mesh.size("pp") > 1 and plan.schedule in ("gpipe", "looped_bfs")
    others = float(plan.micro_batches - schedule.micro_batches) if grows else 0.0
    return _part_of(model.layers, schedule, rank, others)


# What does not fit together.


def _objections_to_schedule(plan: Plan) -> Iterator[str]:
    """Of a schedule that is not in the catalogue: it must exist, and not hang."""
    if plan.schedule.startswith("csv:"):
        if plan.mesh.size("pp") > 1:
            schedule_from_file(plan)  # which the program proves
        return
    names = schedule_names()
    yield (
        f"there is no schedule named '{plan.schedule}'{did_you_mean(plan.schedule, names)}; "
        f"there are {', '.join(names[:-1])} and {names[-1]}, and csv:FILE for your own"
    )


def _objections_to_context(plan: Plan, heads: int, kv_heads: int) -> Iterator[str]:
    """That cp ranks can divide sequences so, and with ulysses the heads of a rank."""
    ranks = plan.mesh.size("cp")
    if ranks == 1:
        return
    pieces = 2 * ranks if plan.token_order == "zigzag" else ranks
    if plan.sequence % pieces:
        yield (
            f"sequences of {plan.sequence} tokens do not divide into {pieces} equal pieces, which "
            f"{plan.token_order} order needs on {ranks} context-parallel ranks: choose a "
            f"--sequence that is a multiple of {pieces}"
        )
    if plan.exchange == "ulysses" and (heads % ranks or kv_heads % ranks):
        yield (
            f"--context ulysses divides the heads of a rank, {heads} query and {kv_heads} key "
            f"heads, among {ranks} context-parallel ranks: choose a cp that divides "
            f"{math.gcd(heads, kv_heads)}, or --context ring"
        )


def objections(plan: Plan, model: Model) -> Iterator[str]:
    """Why the model cannot be divided by the mesh, or which options contradict each other: a
    sentence for each, the first before any that follows from it."""
    mesh, name = plan.mesh, model.name
    t, p, n, c = (mesh.size(axis) for axis in ("tp", "pp", "ep", "cp"))
    if not model.has_blocks and not t == p == 1:
        yield (
            f"only the state of {name} can be accounted for, and only with the axes dp and fsdp: "
            "leave out tp and pp"
        )
    if n > 1 and not model.experts:
        yield f"ep divides experts, and {name} has none: leave out ep"
    if model.experts and model.experts.routed % n:
        yield f"the {model.experts.routed} experts of {name} do not divide by ep={n}"
    if not model.has_blocks:
        return
    if plan.sequence_parallel and model.experts:
        yield (
            "sequence parallel is not known for models with experts: leave out --sequence-parallel"
        )
    if model.heads % t:
        yield f"the {model.heads} heads of {name} do not divide by tp={t}"
    if model.d_ff % t:
        yield f"d_ff {model.d_ff} of {name} does not divide by tp={t}"
    if model.kv_heads % t and t % model.kv_heads:
        yield (
            f"the {model.kv_heads} key and value heads of {name} can neither be divided nor "
            f"replicated evenly over tp={t}"
        )
    if p > model.layers:
        yield f"pp={p} has more stages than {name} has blocks ({model.layers})"
    generator = GENERATORS.get(plan.schedule)
    if generator and plan.chunks not in (1, stages_per_rank(plan)):
        yield (
            f"--chunks {plan.chunks} needs --schedule interleaved, looped_bfs or interleaved_zb, "
            f"not {plan.schedule}"
        )
    if generator and generator.whole_rounds and plan.micro_batches % p:
        yield (
            f"the {plan.schedule} schedule needs a multiple of pp={p} micro-batches, not "
            f"{plan.micro_batches}"
        )
    if not generator:
        yield from _objections_to_schedule(plan)
    # The first stage may have the embedding alone and the last one the head (layers_of_stage()).
    stages = len(placement_of(plan))
    if stages > model.layers + (2 if stages > p else 0):
        yield (
            f"the {model.layers} blocks of {name} do not suffice for {stages} stages: choose a "
            "smaller pp or fewer --chunks"
        )
    if plan.sequence_parallel and t == 1:
        yield "--sequence-parallel needs tensor parallel: tp=2 or more in --mesh"
    if c > 1 and model.kind != "llama":
        yield (
            "context parallel is known for models with fused attention only, not for "
            f"{name}: leave out cp"
        )
    yield from _objections_to_context(plan, model.heads // t, max(1, model.kv_heads // t))
    if plan.sequence_parallel and plan.rank_sequence % t:
        yield (
            f"sequence parallel divides a sequence of {plan.rank_sequence} tokens by tp={t}, "
            "which leaves a remainder"
        )


def validate(plan: Plan, model: Model) -> None:
    """Raises RingsideError with the first of the objections."""
    for objection in objections(plan, model):
        raise RingsideError(objection)
