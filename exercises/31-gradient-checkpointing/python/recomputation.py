"""Which activations to keep: a checkpoint, inputs of groups and of halves of halves, and the choice within a block."""
from __future__ import annotations

import dataclasses
import itertools
from typing import Callable

import torch

Block = Callable[[torch.Tensor], torch.Tensor]  # y = block(x), of one shape. Without history a block saves nothing
Checkpoint = Callable[[Block, torch.Tensor], torch.Tensor]  # y = checkpoint(block, x): saves x alone; backward computes the block again


def through(blocks: list[Block], x: torch.Tensor) -> torch.Tensor:
    """The blocks one after the other."""
    for block in blocks:
        x = block(x)
    return x


@dataclasses.dataclass
class Activation:
    """What a block may keep for backward, or compute again from what comes before it."""

    bytes: int
    flops: int  # to compute it again


class Recomputed(torch.autograd.Function):
    """y = function(x), of which x alone is saved."""

    @staticmethod
    def forward(context, function, x):
        """Returns y. History is off in here."""
        context.function = function
        context.save_for_backward(x)
        return function(x)

    @staticmethod
    def backward(context, dy):
        """Adds to the gradients of the parameters inside, and returns None, for the function, and dx. History is off in here, too."""
        (x,) = context.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            y = context.function(x)
        torch.autograd.backward(y, dy)
        return None, x.grad


def checkpoint(function: Block, x: torch.Tensor) -> torch.Tensor:
    """y = function(x), of which only x is saved: backward computes the function again. Where no history is to be recorded, a plain call."""
    if not (torch.is_grad_enabled() and x.requires_grad):
        return function(x)
    return Recomputed.apply(function, x)


def in_groups(blocks: list[Block], k: int, x: torch.Tensor, checkpoint: Checkpoint) -> torch.Tensor:
    """The blocks one after the other; every `k` of them are one checkpoint, and so is the rest. (Chen et al., 2016, section 4.1)"""
    for begin in range(0, len(blocks), k):
        group = blocks[begin : begin + k]
        x = checkpoint(lambda y, group=group: through(group, y), x)
    return x


def nested(blocks: list[Block], x: torch.Tensor, checkpoint: Checkpoint) -> torch.Tensor:
    """The blocks one after the other, so that backward keeps the activations of one block and the inputs of about log2 of them.
    (Chen et al., 2016, section 4.4)"""
    if len(blocks) == 1:
        return blocks[0](x)
    half = len(blocks) // 2
    y = checkpoint(lambda x: nested(blocks[:half], x, checkpoint), x)
    return nested(blocks[half:], y, checkpoint)


def best_group(blocks: int, input: int, saved: int) -> int:
    """The size of the groups with which memory is smallest: an input of `input` bytes for each group, and `saved` bytes for each block of
    one group."""
    return min(range(1, blocks + 1), key=lambda k: -(-blocks // k) * input + k * saved)


def kept(activations: list[Activation], budget: int) -> list[int]:
    """The indices of the activations to keep: at most `budget` bytes, and the fewest FLOPs for all others. At most 16 activations."""
    best, saved = (), -1
    for count in range(len(activations) + 1):
        for indices in itertools.combinations(range(len(activations)), count):
            bytes, flops = (sum(getattr(activations[i], what) for i in indices) for what in ("bytes", "flops"))
            if bytes <= budget and flops > saved:
                best, saved = indices, flops
    return list(best)
