"""Model: the sizes of a model to be accounted for. It may be of a kind that Ringside does not
train, because published plans are about such models. data/families.json has the keys that a
family's config.json has for each size, and what a size is where its key is missing, as in
transformers."""

import os
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Dict, List, Optional

from ringside.command_line import did_you_mean
from ringside.planning.json_fields import (
    POSITIVE,
    JsonFields,
    data_file,
    read_json_file,
    require,
    shown,
)


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in the place of the feed-forward part."""

    routed: int
    per_token: int
    d_ff: int  # inside one expert
    shared: int = 0
    dense_blocks: int = 0  # so many blocks have an ordinary feed-forward part
    ranks: int = 1  # that divide the routed ones (on_mesh)

    @property
    def here(self) -> float:
        """Routed experts on one rank."""
        return self.routed / self.ranks


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, 2024, section 2.1): queries, and keys with values,
    pass through vectors of low rank."""

    q_rank: int  # 0: queries do not
    kv_rank: int
    nope: int  # width of a head without positions
    rope: int  # and with them
    value: int


@dataclass(frozen=True, eq=False)
class Model:
    """`kind` is "llama" (RMSNorm, rotary positions, SwiGLU or experts; fused attention), "gpt"
    (LayerNorm, learned positions, GELU, biases, dropout), "feed_forward" (blocks of two matrices
    and nothing else: the model of the course's exercise), "deepseek" (latent attention and experts:
    parameters and state only) or "parameters" (a number of parameters, nothing more)."""

    name: str
    source: str
    kind: str
    vocabulary: int = 0
    d_model: int = 0
    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_size: int = 0
    d_ff: int = 0
    dense_ff: int = 0  # of the blocks without experts among those with experts
    parameters: int = 0  # of kind "parameters"
    sequence: int = 0  # the longest sequence, in tokens; the default of a plan
    tied_head: bool = False
    qk_norm: bool = False  # an RMSNorm of each head of q and k, as in Qwen3
    attention_bias: bool = False  # of q, k, v and the output
    mlp_bias: bool = False  # of gate, up and down
    fused_attention: bool = True  # a gpt without attn_implementation: False
    experts: Optional[Experts] = None
    latent: Optional[LatentAttention] = None
    own: bool = False  # a size of Ringside

    @property
    def q_width(self) -> int:
        return self.heads * self.head_size

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_size

    @property
    def has_blocks(self) -> bool:
        """Whether activations, FLOPs and communication can be accounted for, or the state alone."""
        return self.kind not in ("deepseek", "parameters")

    @property
    def keeps_scores(self) -> bool:
        """Whether attention writes its scores to memory and keeps them for backward."""
        return self.kind == "gpt" and not self.fused_attention

    @property
    def per_token(self) -> int:
        """Feed-forward parts that compute a token: those that the router chooses, or one."""
        return self.experts.per_token if self.experts else 1


# What a config.json says.


@cache
def _data(name: str) -> Dict[str, Any]:
    return read_json_file(data_file(name))


@cache
def family_of(model_type: str) -> Dict[str, Any]:
    """A line of families.json, with what it takes from the family that it is `as`."""
    family = dict(_data("families.json")["families"][model_type])
    below = family_of(family["as"]) if "as" in family else {}
    for key, value in below.items():
        family[key] = (
            {**value, **family.get(key, {})} if isinstance(value, dict) else family.get(key, value)
        )
    return family


def _count(fields: JsonFields, family: Dict[str, Any], member: str, sizes: Dict[str, int]) -> int:
    """A size, by its key or its default. Where the default is a number, null stands for the size
    that follows from others."""
    key, _, newer = family["counts"].get(member, member).partition(" or ")
    if newer and not fields.has(key):
        key = newer
    default = family.get("defaults", {}).get(member)
    if fields.has(key) or default is None:
        is_zero = member in family.get("may_be_null", ()) and key in fields.content
        return fields.count(key) if fields.has(key) or not is_zero else 0
    if type(default) is int and key not in fields.content:
        return default
    if member == "d_ff":
        return 4 * sizes["d_model"]
    if member == "kv_heads":
        return sizes["heads"]
    return max(sizes["d_model"] // sizes["heads"], 1)


def _dense_blocks(fields: JsonFields, layers: int) -> int:
    """Blocks without experts of a Qwen3-MoE, as transformers decides for each."""
    step, dense = fields.count("decoder_sparse_step", 1), fields.get("mlp_only_layers", [])
    require(
        isinstance(dense, list) and all(type(each) is int for each in dense),
        f"{fields.place}mlp_only_layers is {shown(dense)}, but a list of blocks' numbers is "
        "expected",
    )
    return sum(block in dense or (block + 1) % step != 0 for block in range(layers))


def _part(sizes: Dict[str, Any], part: str) -> Dict[str, Any]:
    """Takes the members "experts.routed", ... out of the sizes."""
    names = [name for name in sizes if name.startswith(part + ".")]
    return {name.split(".")[1]: sizes.pop(name) for name in names}


def _sizes(fields: JsonFields, family: Dict[str, Any]) -> Dict[str, Any]:
    """The members of a Model that the config.json gives."""
    sizes: Dict[str, Any] = {}
    that_follow = [each for each in ("kv_heads", "head_size") if each in family["defaults"]]
    for member in dict.fromkeys([*family["counts"], *that_follow]):
        sizes[member] = _count(fields, family, member, sizes)
    flags, only = family.get("flags", {}), dict(family.get("only", {}))
    for member, key in flags.items():
        if key is None:
            only[member] = False
        else:
            sizes[member] = fields.flag(key, family["defaults"].get(member, False))
    for key, known in only.items():
        value = fields.get(key, known)
        sentence = f"{fields.place}{key} is {shown(value)}, but {shown(known)} alone is known here"
        require(value == known, sentence)
    sizes.update(family.get("always", {}))
    experts, latent = _part(sizes, "experts"), _part(sizes, "latent")
    if experts and family.get("experts_are_the_feed_forward_part"):
        experts["d_ff"] = sizes["d_ff"]
    if experts and "dense_blocks" in family:
        experts["dense_blocks"] = _dense_blocks(fields, sizes["layers"])
    if experts:
        sizes["experts"] = Experts(**experts)
    if latent:
        sizes["latent"] = LatentAttention(**latent)
    return sizes


def _refuse_unknown_keys(fields: JsonFields) -> None:
    """A key that is not read may change the number of parameters."""
    data = _data("families.json")
    words = data["change_nothing"][1:] + data["change_no_count"][1:]
    harmless = set(" ".join(words).split())
    for key, value in fields.content.items():
        require(
            value is None or key in fields.read or key in harmless,
            f"{fields.place}the key {shown(key)} = {shown(value)} is not known: if it does not "
            "change the number of parameters, remove it from the file",
        )


def read_model(content: Any, name: str, place: str) -> Model:
    """The model that a config.json describes; `place` begins the errors."""
    fields = JsonFields(content, place)
    model_type = fields.text("model_type")
    families = list(_data("families.json")["families"])
    require(
        model_type in families,
        f"{place}model_type is {shown(model_type)}, but llama, "
        "mistral, mixtral, qwen3, qwen3_moe, gpt2, deepseek_v3 or feed_forward is expected",
    )
    family = family_of(model_type)
    model = Model(name, fields.text("source", name), family["kind"])
    if model.kind == "parameters":
        return replace(model, parameters=int(fields.number("parameters", POSITIVE)))
    if model.kind == "gpt":
        attention = fields.text("attn_implementation", "eager")
        model = replace(model, fused_attention=attention != "eager")
    model = replace(model, **_sizes(fields, family))
    require(
        model.heads == 0 or model.heads % model.kv_heads == 0,
        f"{place}{model.heads} heads cannot share {model.kv_heads} key and value heads evenly",
    )
    head_follows = (
        model.heads > 0
        and not model.latent
        and not fields.has("head_dim")
        and model.head_size == max(model.d_model // model.heads, 1)
    )
    require(
        not head_follows or model.d_model % model.heads == 0,
        f"{place}the width {model.d_model} does not divide into {model.heads} heads",
    )
    _refuse_unknown_keys(fields)
    return model


# The models that have names.


def size_names() -> List[str]:
    """The sizes of Ringside, smallest first: tiny, moe-tiny, lab, small, medium, large, xl."""
    return [name for name in _data("families.json")["sizes_of_ringside"] if name != "keys"]


def own_model(name: str) -> Model:
    """A size of Ringside, as transformer/config.cpp has it."""
    sizes = _data("families.json")["sizes_of_ringside"]
    members = dict(zip(sizes["keys"], sizes[name]))
    routed, per_token = members.pop("experts.routed", 0), members.pop("experts.per_token", 0)
    experts = Experts(routed, per_token, members["d_ff"]) if routed else None
    return Model(
        name,
        "transformer/config.cpp",
        "llama",
        **members,
        experts=experts,
        own=True,
        head_size=members["d_model"] // members["heads"],
    )


def model_names() -> List[str]:
    """The names of data/models.json, in the order of the file."""
    return list(_data("models.json"))


def find_model(name: str) -> Model:
    """`name` is a size of Ringside ("lab"), a model of data/models.json ("xxl", "llama3-405b"), or
    a path: a config.json of Hugging Face, or a folder that has one. The error says what is known,
    or which key of the file is wrong."""
    own, published = size_names(), model_names()
    if name in own:
        return own_model(name)
    if name in published:
        return read_model(_data("models.json")[name], name, f"models.json: {name}.")
    path = os.path.join(name, "config.json") if os.path.isdir(name) else name
    require(
        os.path.exists(path),
        f"there is no model or file named '{name}'"
        f"{did_you_mean(name, published + own)}; sizes of Ringside: {', '.join(own)}; "
        f"published models: {', '.join(published)}; or give the path of a config.json",
    )
    return read_model(read_json_file(path), path, f"{path}: ")


def on_mesh(model: Model, expert_ranks: int) -> Model:
    """The model with its experts divided among the ep ranks of the mesh."""
    if not model.experts or model.experts.ranks == expert_ranks:
        return model
    return replace(model, experts=replace(model.experts, ranks=expert_ranks))
