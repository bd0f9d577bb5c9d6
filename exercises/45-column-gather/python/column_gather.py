"""Layers that are divided by outputs, with an all-gather after each, and backward through that. Activations are [features, batch]."""
from __future__ import annotations

import dataclasses

import torch
import torch.distributed as dist
from torch.nn import functional


@dataclasses.dataclass
class Layer:
    """This rank's rows of a layer: y = gelu(W x), or W x."""

    weight: torch.Tensor  # requires a gradient
    has_gelu: bool
    x: torch.Tensor | None = None  # yours, to keep what backward needs
    y: torch.Tensor | None = None


def part_of(whole: torch.Tensor) -> torch.Tensor:
    """This rank's rows of a tensor, a copy."""
    return whole.detach().chunk(dist.get_world_size())[dist.get_rank()].clone()


def gelu(z: torch.Tensor) -> torch.Tensor:
    return functional.gelu(z, approximate="tanh")


def forward_gathered(layers: list[Layer], x: torch.Tensor) -> torch.Tensor:
    """y of the last layer, on every rank. Leaves in each layer what backward needs."""
    for layer in layers:
        layer.x = x.detach().requires_grad_(True)
        layer.y = layer.weight @ layer.x
        if layer.has_gelu:
            layer.y = gelu(layer.y)
        x = torch.empty(layer.y.shape[0] * dist.get_world_size(), layer.y.shape[1])
        dist.all_gather_into_tensor(x, layer.y.detach())
    return x


def backward_gathered(layers: list[Layer], dy: torch.Tensor) -> torch.Tensor:
    """dy is the gradient of that y, the same on all ranks. Adds dW to the gradient of each weight, and returns this rank's rows of the
    gradient of x."""
    own_dy = part_of(dy)
    for layer in reversed(layers):
        layer.y.backward(own_dy)  # leaves in layer.x.grad what this rank says about all of x
        own_dy = torch.empty(layer.x.shape[0] // dist.get_world_size(), layer.x.shape[1])
        dist.reduce_scatter_tensor(own_dy, layer.x.grad)
    return own_dy
