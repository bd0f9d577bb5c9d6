"""How many parameters a model has, part by part. Symbols: symbols.py."""

from dataclasses import astuple
from typing import List

from ringside.planning.formulas.symbols import Symbols, mean_of_blocks
from ringside.planning.model import Model
from ringside.planning.plan import PipelinePart
from ringside.planning.quantity import Term, formula, named, term

LLAMA = "Touvron et al. 2023, section 2.2"
GPT = "Narayanan et al. 2021, section 5.1"
COURSE = "Stanford CS336, assignment 2"
DEEPSEEK = "DeepSeek-V2 2024, section 2.1; DeepSeek-V3 2024, section 4.2"
MIXTRAL = "Jiang et al. 2024 (Mixtral), section 2.1"


def _source_of(model: Model) -> str:
    return {"gpt": GPT, "feed_forward": COURSE}.get(model.kind, LLAMA)


@formula("P_attention", "latent attention of a block", source=DEEPSEEK)
def latent_attention(model: Model) -> float:
    """Queries of rank q, then up to heads of (n + r); keys and values of rank c with r numbers of
    position, then up to heads of (n + v); the output; and the norms of both vectors of low rank.
    With q_rank 0 queries come from the whole width."""
    assert model.latent is not None
    x = Symbols(model)
    d, a, (q, c, n, r, v) = x.d, x.a, map(named, "qcnrv", astuple(model.latent))
    queries = d * q + q + q * a * (n + r) if model.latent.q_rank else d * a * (n + r)
    return queries + d * (c + r) + c + c * a * (n + v) + a * v * d


@formula("P_experts", "experts of a block, with the router and its bias", source=DEEPSEEK)
def expert_block(model: Model) -> float:
    """Routed and shared experts of three matrices, the router, and the bias that balances it."""
    x = Symbols(model)
    return 3 * x.d * x.f_e * (x.E + x.E_s) + x.d * x.E + x.E


@formula("P_dense", "feed-forward part of a block without experts", source=DEEPSEEK)
def dense_block(model: Model) -> float:
    x = Symbols(model)
    return 3 * x.d * x.f


def _deepseek(model: Model) -> List[Term]:
    assert model.experts is not None
    x, dense = Symbols(model), named("L_dense", model.experts.dense_blocks)
    attention, feed_forward, experts = (
        latent_attention(model),
        dense_block(model),
        expert_block(model),
    )
    edges = x.V * x.d + x.d if model.tied_head else 2 * x.V * x.d + x.d
    blocks = edges + x.L * (attention + 2 * x.d) + dense * feed_forward + (x.L - dense) * experts
    return [attention, feed_forward, experts, term("P", "all parameters", blocks, source=DEEPSEEK)]


def router(model: Model) -> float:
    """The matrix that chooses experts."""
    x = Symbols(model)
    return x.d * x.E


def _with_experts(model: Model, experts: float) -> float:
    """A block whose matrices are those of attention, the router, and `experts` experts."""
    x = Symbols(model)
    feed_forward = router(model) + 3 * x.d * x.f * experts
    return 2 * x.d * x.q + 2 * x.d * x.kv + mean_of_blocks(model, feed_forward, 3 * x.d * x.f_d)


def block_matrices(model: Model) -> Term:
    """The matrices of one block, which tensor parallel divides; and with experts the router, which
    it does not."""
    x = Symbols(model)
    if model.kind == "feed_forward":
        parts, source, numbers = "up, down", COURSE, 2 * x.d * x.f
    elif model.kind == "gpt":
        parts, source = "q, k, v, output; up, down", GPT
        numbers = 4 * x.d * x.d + 2 * x.d * x.f
    elif model.experts:
        parts, source = "q and output, k and v; router; gate, up, down of E experts", MIXTRAL
        numbers = _with_experts(model, x.E)
    else:
        parts, source = "q and output, k and v; gate, up, down", LLAMA
        numbers = 2 * x.d * x.q + 2 * x.d * x.kv + 3 * x.d * x.f
    return term("P_matrices", f"matrices of a block: {parts}", numbers, source=source)


def active_matrices(model: Model) -> Term:
    """The same without the experts that a token does not use; equal without experts."""
    if model.kind != "llama" or not model.experts:
        return block_matrices(model)
    what = "matrices of a block that compute a token: K of E experts"
    return term("P_active", what, _with_experts(model, Symbols(model).K), source=MIXTRAL)


@formula(
    "P_active", "parameters that compute a token: without E - K experts of a block", source=MIXTRAL
)
def active_parameters(model: Model) -> float:
    """All parameters but the experts that a token does not use. For models with experts."""
    assert model.experts is not None
    x, blocks = Symbols(model), named("L_experts", model.layers - model.experts.dense_blocks)
    return named("P", parameter_count(model)[-1]) - blocks * 3 * x.d * x.f_e * (x.E - x.K)


def block_vectors(model: Model) -> Term:
    """The norms and biases of one block, which every tensor-parallel rank keeps."""
    x, has_biases = Symbols(model), model.attention_bias or model.mlp_bias
    if model.kind == "feed_forward":
        what, vectors = "norms and biases of a block: none", 0.0
    elif model.kind == "gpt":
        what, vectors = "two LayerNorms, and the biases of the matrices", 9 * x.d + x.f
    else:
        heads = ", and those of heads of q and k" if model.qk_norm else ""
        what, vectors = "two RMSNorms" + (", and biases" if has_biases else heads), 2 * x.d
        if model.attention_bias:
            vectors = vectors + x.q + 2 * x.kv + x.d
        if model.mlp_bias:
            vectors = vectors + 2 * x.f + x.d
        if model.qk_norm:
            vectors = vectors + 2 * x.d_head
    return term("P_vectors", what, vectors, source=_source_of(model))


def embedding(model: Model) -> Term:
    """The table of tokens, and of positions where they are learned."""
    x, what = Symbols(model), "embedding of tokens"
    rows = x.V
    if model.kind == "gpt":
        what, rows = "embeddings of tokens and of positions", x.V + named("s", model.sequence)
    return term("P_embedding", what, rows * x.d, source=_source_of(model))


def last_norm(model: Model) -> Term:
    what, numbers = "last norm", (2 if model.kind == "gpt" else 1) * Symbols(model).d
    if model.kind == "feed_forward":
        what, numbers = "last norm: none", 0.0
    return term("P_norm", what, numbers, source=_source_of(model))


def head(model: Model) -> Term:
    """The matrix of the head; 0 if it is the embedding's."""
    x, what = Symbols(model), "head"
    numbers = x.V * x.d
    if model.tied_head or model.vocabulary == 0:
        what, numbers = "head: no matrix of its own", 0.0
    return term("P_head", what, numbers, source=_source_of(model))


def whole_block(model: Model, t: float) -> Term:
    """A block on one of t tensor-parallel ranks: matrices divided, vectors and router whole; of the
    experts those of one of the expert-parallel ranks (Experts.ranks)."""
    x, what = Symbols(model), "parameters of a block on one rank"
    if model.experts:
        what += ", with E / n experts and the router"
        whole = mean_of_blocks(model, router(model))
        matrices = _with_experts(model, named("E / n", model.experts.here))
        on_rank = (matrices - whole) / t + whole + block_vectors(model)
    else:
        on_rank = block_matrices(model) / t + block_vectors(model)
    # Each rank has at least one head of keys and values: more ranks than heads share copies.
    if 0 < model.kv_heads < t:
        on_rank = on_rank + 2 * x.d * (x.d_head - x.kv / t)
    return term("P_block", what, on_rank, source="Shoeybi et al. 2019 (Megatron-LM), section 3")


def down_projection(model: Model, t: float) -> float:
    """The matrix by which the feed-forward part of a block ends, on one of t tensor-parallel ranks;
    with experts, those of all experts that the rank holds."""
    x = Symbols(model)
    return x.h * x.f * named("E / n", model.experts.here) / t if model.experts else x.h * x.f / t


def stage_parameters(model: Model, t: float, part: PipelinePart) -> float:
    """The parameters of a part of the pipeline on one of t tensor-parallel ranks: its blocks, and
    where it has them the embedding, the last norm and the head."""
    total = named("L_stage", part.blocks) * whole_block(model, t)
    if model.vocabulary == 0:
        return total
    if part.has_embedding:
        total = total + embedding(model) / t
    if not part.has_head:
        return total
    total = total + last_norm(model)
    if not model.tied_head:
        return total + head(model) / t
    # A tied head on another stage than the embedding is a copy.
    return total if part.has_embedding else total + embedding(model) / t


def parameter_count(model: Model) -> List[Term]:
    """All parameters, with the parts that they are the sum of. The last term is the total."""
    if model.kind == "parameters":
        return [term("P", "all parameters", named("P", model.parameters), source=model.source)]
    if model.kind == "deepseek":
        return _deepseek(model)
    matrices, blocks = block_matrices(model), Symbols(model).L
    if model.kind == "feed_forward":
        parts, total = [matrices], blocks * matrices
    else:
        of_model = (block_matrices, block_vectors, embedding, last_norm, head)
        parts = [part(model) for part in of_model]
        _, vectors, table, norm, matrix = parts
        total = table + blocks * (matrices + vectors) + norm + matrix
    return [*parts, term("P", "all parameters", total, source=_source_of(model))]
