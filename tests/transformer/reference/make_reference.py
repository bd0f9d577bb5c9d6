#!/usr/bin/env python3
"""Writes the reference models of this directory: small Llamas, a Mixtral, a Qwen3 and a Qwen3-MoE, with the
results of PyTorch and transformers in fp64.

    python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch transformers safetensors
    /tmp/oracle/bin/python make_reference.py [--check] [--only mixtral]

Each model has a directory. config.json and model.safetensors are in the format of transformers. The
weights are fp32, so they are exactly the same numbers in fp64. expected.safetensors has the loss, the
logits and the gradient of every parameter ("gradient.NAME"), computed in fp64. The tokens are in
tokens.json. With --check the script writes nothing and compares the files with new results.

The weights are larger than those of a new model: attention must prefer some tokens to others, or a
wrong mask or angle would not show.

transformers computes norms, angles, softmax and loss in fp32 for every dtype of the model. In an fp64
model that loses precision. So while the script runs, "fp32" is patched to mean fp64.
"""
import argparse
import contextlib
import json
import pathlib

import torch
from safetensors.torch import load_file, save_file
from transformers import (LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)

here = pathlib.Path(__file__).parent


@contextlib.contextmanager
def everything_in_fp64():
    before = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = before
        torch.set_default_dtype(torch.float32)


shared = dict(
    vocab_size=29, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=12,
    rms_norm_eps=3e-5, rope_parameters={"rope_type": "default", "rope_theta": 700.0}, bos_token_id=None, eos_token_id=None,
    attn_implementation="eager")
models = {
    "untied_grouped": dict(num_key_value_heads=2, tie_word_embeddings=False),
    "tied": dict(num_key_value_heads=4, tie_word_embeddings=True),
    # As Llama 3.1 and later. The old length of 60 gives each of its three rules a frequency. The heads are wider
    # than d_model / heads, and the file is fp16.
    "llama3_fp16": dict(
        num_key_value_heads=2, tie_word_embeddings=False, head_dim=10,
        rope_parameters={"rope_type": "llama3", "rope_theta": 700.0, "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 60}),
    # As in 2023: rope_theta and rope_scaling, whose key was "type".
    "linear": dict(
        num_key_value_heads=4, tie_word_embeddings=True,
        rope_parameters={"rope_type": "linear", "rope_theta": 700.0, "factor": 2.5}),
    "mixtral": dict(
        num_key_value_heads=2, tie_word_embeddings=False, intermediate_size=12, num_local_experts=4, num_experts_per_tok=2,
        experts_implementation="eager"),
    "qwen3": dict(num_key_value_heads=2, tie_word_embeddings=True, head_dim=6),
    "qwen3_moe": dict(
        num_key_value_heads=2, tie_word_embeddings=False, head_dim=6, moe_intermediate_size=12, num_experts=4,
        num_experts_per_tok=2, norm_topk_prob=True, experts_implementation="eager"),
}
classes = {"mixtral": (MixtralConfig, MixtralForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM),
           "qwen3_moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM)}


def class_of(name):
    return classes.get(name, (LlamaConfig, LlamaForCausalLM))[1]


def has_experts(name):
    return name in ("mixtral", "qwen3_moe")


def stored_gradients(name, gradient, is_mixtral):
    """The names and tensors as the file has them: transformers joins the experts of a block in memory."""
    moe, gate, up, down = ("block_sparse_moe", "w1", "w3", "w2") if is_mixtral else ("mlp", "gate_proj", "up_proj", "down_proj")
    if name.endswith("experts.gate_up_proj"):
        block = name.removesuffix("mlp.experts.gate_up_proj") + f"{moe}.experts."
        for i, both in enumerate(gradient):
            for part, matrix in zip((gate, up), both.chunk(2)):
                yield f"{block}{i}.{part}.weight", matrix.clone()
    elif name.endswith("experts.down_proj"):
        block = name.removesuffix("mlp.experts.down_proj") + f"{moe}.experts."
        for i, matrix in enumerate(gradient):
            yield f"{block}{i}.{down}.weight", matrix.clone()
    else:
        yield name.replace("mlp.gate.", f"{moe}.gate."), gradient.clone()


def write_config_of_2023(path):
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    config |= {"rope_theta": 700.0, "rope_scaling": {"type": "linear", "factor": 2.5}}
    path.write_text(json.dumps(config, indent=2) + "\n")


def make_model(name):
    torch.manual_seed(list(models).index(name))
    config = classes.get(name, (LlamaConfig,))[0](**(shared | models[name]))
    model = class_of(name)(config)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            mean = 1.0 if "norm" in parameter_name else 0.0
            parameter.copy_(mean + 0.35 * torch.randn(parameter.shape))
            if name.endswith("fp16"):
                parameter.copy_(parameter.half())  # the same numbers in fp16, fp32 and fp64
    return model.float()


def expected_of(model, tokens):
    with everything_in_fp64():
        precise = type(model)(model.config)  # a new model, so that its table of angles is fp64 too
        precise.load_state_dict(model.state_dict())
        output = precise(input_ids=tokens, labels=tokens, use_cache=False)
        output.loss.backward()
    arrays = {"gradient." + stored: gradient for name, parameter in precise.named_parameters()
              for stored, gradient in stored_gradients(name, parameter.grad, isinstance(model, MixtralForCausalLM))}
    return {"loss": output.loss.detach().reshape(1), "logits": output.logits.detach().clone(), **arrays}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", choices=models, help="write one model, with the tokens that are there")
    arguments = parser.parse_args()
    check = arguments.check
    if not check and not arguments.only:
        torch.manual_seed(7)
        (here / "tokens.json").write_text(json.dumps(torch.randint(0, 29, (3, 12)).tolist()) + "\n")
    tokens = torch.tensor(json.loads((here / "tokens.json").read_text()))
    for name in [arguments.only] if arguments.only else models:
        folder = here / name
        if check:
            more = {"experts_implementation": "eager"} if has_experts(name) else {}
            model = class_of(name).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32, **more)
            expected = expected_of(model, tokens)
            stored = load_file(folder / "expected.safetensors")
            assert stored.keys() == expected.keys()
            worst = max((stored[key] - expected[key]).abs().max().item() for key in stored)
            output = model(input_ids=tokens, labels=tokens)
            rounded = (output.logits - stored["logits"]).abs().max().item()
            print(f"{name}: the largest difference is {worst:.2g}; logits in fp32 are within {rounded:.2g}")
            continue
        model = make_model(name)
        (model.half() if name.endswith("fp16") else model).save_pretrained(folder)
        model.float()
        (folder / "generation_config.json").unlink(missing_ok=True)
        if name == "linear":
            write_config_of_2023(folder / "config.json")
        save_file(expected_of(model, tokens), folder / "expected.safetensors")


main()
