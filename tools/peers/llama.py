"""The Llama model of transformer/ in PyTorch, with the same sizes, for the comparisons."""
import importlib.util
import os
import sys

SIZES = {  # d_model, heads, d_ff, layers, vocabulary
    "tiny": (128, 4, 344, 4, 256),
    "lab": (512, 16, 1344, 4, 10000),
    "small": (768, 12, 3072, 12, 10000),
}


def let_libraries_choose():
    """Removes the variables that make a library use less than the processor has, and names them."""
    for variable in ("OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR",
                     "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY",
                     "RINGSIDE_ONEDNN"):
        value = os.environ.pop(variable, None)
        if value is not None:
            print(f"measured without {variable}={value}, which this environment sets")


def require_torch():
    if importlib.util.find_spec("torch") is None:
        print(f"{sys.argv[0]}: {sys.executable} has no torch: install it (pip install torch, in a "
              "venv outside the repository) and run this script with that Python", file=sys.stderr)
        sys.exit(2)


def adamw_options(device="cpu"):
    """Options of torch.optim.AdamW: fused, where this version has that for the device."""
    import torch

    options = {"lr": 1e-4, "weight_decay": 0.1}
    try:
        torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1, device=device))], fused=True, **options)
        return {"fused": True, **options}
    except (RuntimeError, TypeError):
        return options


def make_llama(model_name, batch, sequence, device="cpu", dtype=None):
    """Returns a model that maps tokens [batch, sequence] to logits [batch, sequence, vocabulary].

    Its initial values are those of seed 0. Weights and activations are of `dtype`, or fp32."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    d, heads, d_ff, layers, vocabulary = SIZES[model_name]
    size = d // heads

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(d))

        def forward(self, x):
            if hasattr(F, "rms_norm"):
                return F.rms_norm(x, (d,), self.weight, 1e-5)
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight

    angles = torch.outer(torch.arange(sequence).float(),
                         10000.0 ** (-torch.arange(0, size, 2).float() / size))
    angles = torch.cat([angles, angles], 1)
    hidden_keys = torch.full((sequence, sequence), float("-inf")).triu(1)
    cos, sin, hidden_keys = (x.to(device, dtype) for x in (angles.cos(), angles.sin(), hidden_keys))

    def rope(x):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    def attend(q, k, v):
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return ((q @ k.transpose(-1, -2)) * size**-0.5 + hidden_keys).softmax(-1) @ v

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            linear = lambda i, o: nn.Linear(i, o, bias=False)
            self.n1, self.n2 = Norm(), Norm()
            self.q, self.k, self.v, self.o = (linear(d, d) for _ in range(4))
            self.gate, self.up, self.down = linear(d, d_ff), linear(d, d_ff), linear(d_ff, d)

        def forward(self, x):
            h = self.n1(x)
            q, k, v = (f(h).view(batch, sequence, heads, size).transpose(1, 2)
                       for f in (self.q, self.k, self.v))
            x = x + self.o(attend(rope(q), rope(k), v).transpose(1, 2).reshape(batch, sequence, d))
            h = self.n2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(vocabulary, d)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = Norm(), nn.Linear(d, vocabulary, bias=False)

        def hidden(self, tokens):
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x)
            return x

        def forward(self, tokens):
            return self.head(self.norm(self.hidden(tokens)))

    torch.manual_seed(0)
    return Llama().to(device, dtype)
