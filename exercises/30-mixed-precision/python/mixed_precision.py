"""Mixed precision: sums, the scale of the loss, and the types of results."""
import dataclasses
import math

import torch

LARGEST_FP16 = 65504


@dataclasses.dataclass
class LossScale:
    """What a training with fp16 gradients keeps from step to step."""

    scale: float = 65536.0  # the loss is multiplied by it before backward; a power of two
    good_steps: int = 0  # in a row, since the scale changed or a gradient was not finite
    interval: int = 2000  # so many good steps double the scale


def accumulated(values: torch.Tensor, terms: torch.dtype, sum_in: torch.dtype) -> float:
    """The sum of `values` in fp32 from left to right, from 0 on. Each value is rounded to the type `terms`, and the sum to the type
    `sum_in` after each addition."""
    total = torch.zeros((), dtype=sum_in)
    for value in values.to(terms):
        total = (total.float() + value.float()).to(sum_in)
    return total.item()


def largest_scale(gradients: torch.Tensor) -> float:
    """The largest power of two with which no gradient is larger than fp16's largest number. At least one gradient is not 0; all are finite."""
    largest = gradients.abs().max().item()
    scale = 2.0 ** (16 - math.frexp(largest)[1])
    return scale / 2 if largest * scale > LARGEST_FP16 else scale


def unscaled(gradients: torch.Tensor, state: LossScale) -> bool:
    """Whether the optimizer may take its step. If all gradients are finite, they are divided by the scale, in place; after `interval` such
    steps in a row the scale doubles, and the count starts over. Else they stay as they are, the scale halves, and the count starts over."""
    if not gradients.isfinite().all():
        state.scale /= 2
        state.good_steps = 0
        return False
    gradients /= state.scale
    state.good_steps += 1
    if state.good_steps == state.interval:
        state.scale *= 2
        state.good_steps = 0
    return True


def result_type(operation: str, inputs: list, low: torch.dtype) -> torch.dtype:
    """The type of an operation's result under autocast to `low`: "linear", "activation", "add", "norm", "softmax" or "loss". `inputs` are
    the types of its inputs, without weights."""
    if operation == "linear":
        return low
    if operation == "activation":
        return inputs[0]
    if operation == "add":
        return torch.float32 if torch.float32 in inputs else low
    return torch.float32
