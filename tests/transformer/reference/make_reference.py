#!/usr/bin/env python3
"""Writes the reference models of this directory: small Llamas, with the results of PyTorch and
transformers in fp64.

    python3 -m venv /tmp/oracle && /tmp/oracle/bin/pip install torch transformers safetensors
    /tmp/oracle/bin/python make_reference.py [--check]

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
from transformers import LlamaConfig, LlamaForCausalLM

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
}


def write_config_of_2023(path):
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    config |= {"rope_theta": 700.0, "rope_scaling": {"type": "linear", "factor": 2.5}}
    path.write_text(json.dumps(config, indent=2) + "\n")


def make_model(name):
    torch.manual_seed(list(models).index(name))
    model = LlamaForCausalLM(LlamaConfig(**(shared | models[name])))
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            mean = 1.0 if "norm" in parameter_name else 0.0
            parameter.copy_(mean + 0.35 * torch.randn(parameter.shape))
            if name.endswith("fp16"):
                parameter.copy_(parameter.half())  # the same numbers in fp16, fp32 and fp64
    return model.float()


def expected_of(model, tokens):
    with everything_in_fp64():
        precise = LlamaForCausalLM(model.config)  # a new model, so that its table of angles is fp64 too
        precise.load_state_dict(model.state_dict())
        output = precise(input_ids=tokens, labels=tokens, use_cache=False)
        output.loss.backward()
    arrays = {"gradient." + name: parameter.grad.clone() for name, parameter in precise.named_parameters()}
    return {"loss": output.loss.detach().reshape(1), "logits": output.logits.detach().clone(), **arrays}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    if not check:
        torch.manual_seed(7)
        (here / "tokens.json").write_text(json.dumps(torch.randint(0, 29, (3, 12)).tolist()) + "\n")
    tokens = torch.tensor(json.loads((here / "tokens.json").read_text()))
    for name in models:
        folder = here / name
        if check:
            model = LlamaForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
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
