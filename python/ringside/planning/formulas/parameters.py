"""How many parameters a model has, part by part.

Symbols: d width, f width inside the feed-forward part (f_e of an expert, f_d beside experts), q and
kv width of all query heads and of all key (or value) heads, V vocabulary, L blocks, s longest
sequence, E experts of which K compute a token, n ranks that divide them, t tensor-parallel ranks.
"""

from typing import List

from ringside.planning.formulas.symbols import mean_of_blocks
from ringside.planning.model import Model
from ringside.planning.plan import PipelinePart
from ringside.planning.quantity import Term, named, term

LLAMA = "Touvron et al. 2023, section 2.2"
GPT = "Narayanan et al. 2021, section 5.1"
COURSE = "Stanford CS336, assignment 2"
DEEPSEEK = "DeepSeek-V2 2024, section 2.1; DeepSeek-V3 2024, section 4.2"
MIXTRAL = "Jiang et al. 2024 (Mixtral), section 2.1"


def _source_of(model: Model) -> str:
    return {"gpt": GPT, "feed_forward": COURSE}.get(model.kind, LLAMA)


def latent_attention(model: Model) -> Term:
    """Queries of rank q, then up to heads of (n + r); keys and values of rank c with r numbers of
    position, then up to heads of (n + v); the output; and the norms of both vectors of low rank.
    With q_rank 0 queries come from the whole width."""
    latent = model.latent
    assert latent is not None
    d, a, q = named("d", model.d_model), named("a", model.heads), named("q", latent.q_rank)
    c, n = named("c", latent.kv_rank), named("n", latent.nope)
    r, v = named("r", latent.rope), named("v", latent.value)
    queries = d * q + q + q * a * (n + r) if latent.q_rank else d * a * (n + r)
    return term(
        "P_attention",
        "latent attention of a block",
        queries + d * (c + r) + c + c * a * (n + v) + a * v * d,
        source=DEEPSEEK,
    )


def expert_block(model: Model) -> Term:
    """Routed and shared experts of three matrices, the router, and the bias that balances it."""
    experts = model.experts
    assert experts is not None
    d, f = named("d", model.d_model), named("f_e", experts.d_ff)
    routed, shared = named("E", experts.routed), named("E_s", experts.shared)
    return term(
        "P_experts",
        "experts of a block, with the router and its bias",
        3 * d * f * (routed + shared) + d * routed + routed,
        source=DEEPSEEK,
    )


def _deepseek(model: Model) -> List[Term]:
    assert model.experts is not None
    d, f, blocks = named("d", model.d_model), named("f", model.d_ff), named("L", model.layers)
    vocabulary, dense = named("V", model.vocabulary), named("L_dense", model.experts.dense_blocks)
    attention, experts = latent_attention(model), expert_block(model)
    feed_forward = term(
        "P_dense", "feed-forward part of a block without experts", 3 * d * f, source=DEEPSEEK
    )
    edges = 2 * vocabulary * d + d if not model.tied_head else vocabulary * d + d
    total = term(
        "P",
        "all parameters",
        edges + blocks * (attention + 2 * d) + dense * feed_forward + (blocks - dense) * experts,
        source=DEEPSEEK,
    )
    return [attention, feed_forward, experts, total]


def _with_experts(model: Model, experts: float) -> float:
    """A block whose matrices are those of attention, the router, and `experts` experts."""
    d, f, q = named("d", model.d_model), named("f", model.d_ff), named("q", model.q_width)
    kv = named("kv", model.kv_width)
    if model.experts and model.experts.dense_blocks:
        return (
            2 * d * q
            + 2 * d * kv
            + mean_of_blocks(
                model, router(model) + 3 * d * f * experts, 3 * d * named("f_d", model.dense_ff)
            )
        )
    return 2 * d * q + 2 * d * kv + router(model) + 3 * d * f * experts


def router(model: Model) -> float:
    """The matrix that chooses experts."""
    assert model.experts is not None
    return named("d", model.d_model) * named("E", model.experts.routed)


def block_matrices(model: Model) -> Term:
    """The matrices of one block, which tensor parallel divides; and with experts the router, which
    it does not."""
    d, f = named("d", model.d_model), named("f", model.d_ff)
    if model.kind == "feed_forward":
        return term("P_matrices", "matrices of a block: up, down", 2 * d * f, source=COURSE)
    if model.kind == "gpt":
        return term(
            "P_matrices",
            "matrices of a block: q, k, v, output; up, down",
            4 * d * d + 2 * d * f,
            source=GPT,
        )
    if model.experts:
        return term(
            "P_matrices",
            "matrices of a block: q and output, k and v; router; gate, up, down of E experts",
            _with_experts(model, named("E", model.experts.routed)),
            source=MIXTRAL,
        )
    q, kv = named("q", model.q_width), named("kv", model.kv_width)
    return term(
        "P_matrices",
        "matrices of a block: q and output, k and v; gate, up, down",
        2 * d * q + 2 * d * kv + 3 * d * f,
        source=LLAMA,
    )


def active_matrices(model: Model) -> Term:
    """The same without the experts that a token does not use; equal without experts."""
    if model.kind != "llama" or not model.experts:
        return block_matrices(model)
    return term(
        "P_active",
        "matrices of a block that compute a token: K of E experts",
        _with_experts(model, named("K", model.experts.per_token)),
        source=MIXTRAL,
    )


def active_parameters(model: Model) -> Term:
    """All parameters but the experts that a token does not use. For models with experts."""
    experts = model.experts
    assert experts is not None
    d, f, routed = named("d", model.d_model), named("f_e", experts.d_ff), named("E", experts.routed)
    blocks = named("L_experts", model.layers - experts.dense_blocks)
    return term(
        "P_active",
        "parameters that compute a token: without E - K experts of a block",
        named("P", parameter_count(model)[-1])
        - blocks * 3 * d * f * (routed - named("K", experts.per_token)),
        source=MIXTRAL,
    )


def block_vectors(model: Model) -> Term:
    """The norms and biases of one block, which every tensor-parallel rank keeps."""
    d, f = named("d", model.d_model), named("f", model.d_ff)
    if model.kind == "feed_forward":
        return term("P_vectors", "norms and biases of a block: none", 0.0, source=COURSE)
    if model.kind == "gpt":
        return term(
            "P_vectors", "two LayerNorms, and the biases of the matrices", 9 * d + f, source=GPT
        )
    q, kv = named("q", model.q_width), named("kv", model.kv_width)
    vectors = 2 * d
    if model.attention_bias:
        vectors = vectors + q + 2 * kv + d
    if model.mlp_bias:
        vectors = vectors + 2 * f + d
    if model.qk_norm:
        vectors = vectors + 2 * named("d_head", model.head_size)
    what = "two RMSNorms, and those of heads of q and k" if model.qk_norm else "two RMSNorms"
    if model.attention_bias or model.mlp_bias:
        what = "two RMSNorms, and biases"
    return term("P_vectors", what, vectors, source=LLAMA)


def embedding(model: Model) -> Term:
    """The table of tokens, and of positions where they are learned."""
    d, vocabulary = named("d", model.d_model), named("V", model.vocabulary)
    if model.kind == "gpt":
        return term(
            "P_embedding",
            "embeddings of tokens and of positions",
            (vocabulary + named("s", model.sequence)) * d,
            source=GPT,
        )
    return term("P_embedding", "embedding of tokens", vocabulary * d, source=_source_of(model))


def last_norm(model: Model) -> Term:
    if model.kind == "feed_forward":
        return term("P_norm", "last norm: none", 0.0, source=COURSE)
    return term(
        "P_norm",
        "last norm",
        (2 if model.kind == "gpt" else 1) * named("d", model.d_model),
        source=_source_of(model),
    )


def head(model: Model) -> Term:
    """The matrix of the head; 0 if it is the embedding's."""
    if model.tied_head or model.vocabulary == 0:
        return term("P_head", "head: no matrix of its own", 0.0, source=_source_of(model))
    return term(
        "P_head",
        "head",
        named("V", model.vocabulary) * named("d", model.d_model),
        source=_source_of(model),
    )


def whole_block(model: Model, t: float) -> Term:
    """A block on one of t tensor-parallel ranks: matrices divided, vectors and router whole; of the
    experts those of one of the expert-parallel ranks (Experts.ranks)."""
    if model.experts:
        gates = mean_of_blocks(model, router(model))
        on_rank = (
            (_with_experts(model, named("E / n", model.experts.here)) - gates) / t
            + gates
            + block_vectors(model)
        )
    else:
        on_rank = block_matrices(model) / t + block_vectors(model)
    # Each rank has at least one head of keys and values: more ranks than heads share copies.
    if 0 < model.kv_heads < t:
        on_rank = on_rank + 2 * named("d", model.d_model) * (
            named("d_head", model.head_size) - named("kv", model.kv_width) / t
        )
    what = "parameters of a block on one rank"
    return term(
        "P_block",
        f"{what}, with E / n experts and the router" if model.experts else what,
        on_rank,
        source="Shoeybi et al. 2019 (Megatron-LM), section 3",
    )


def down_projection(model: Model, t: float) -> float:
    """The matrix by which the feed-forward part of a block ends, on one of t tensor-parallel ranks;
    with experts, those of all experts that the rank holds."""
    h, f = named("h", model.d_model), named("f", model.d_ff)
    return h * f * named("E / n", model.experts.here) / t if model.experts else h * f / t


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
    blocks = named("L", model.layers)
    matrices, vectors = block_matrices(model), block_vectors(model)
    if model.kind == "feed_forward":
        return [matrices, term("P", "all parameters", blocks * matrices, source=COURSE)]
    table, norm, matrix = embedding(model), last_norm(model), head(model)
    return [
        matrices,
        vectors,
        table,
        norm,
        matrix,
        term(
            "P",
            "all parameters",
            table + blocks * (matrices + vectors) + norm + matrix,
            source=_source_of(model),
        ),
    ]
