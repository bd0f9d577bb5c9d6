"""Tensor parallelism: a linear layer that is divided over the ranks by its outputs (column), and one by its inputs (row)."""
from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn import functional


def sum_of_ranks(x: torch.Tensor) -> torch.Tensor:
    """The sum of all ranks' x, in new memory."""
    total = x.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


class CopyToGroup(torch.autograd.Function):
    """f: the identity forward; backward the sum of all ranks' gradients."""

    @staticmethod
    def forward(context, x):
        """Returns x; as a view, or torch would take it for the input itself."""
        return x.view_as(x)

    @staticmethod
    def backward(context, dy):
        """Returns the gradient of x."""
        return sum_of_ranks(dy)


class ReduceFromGroup(torch.autograd.Function):
    """g: the sum of all ranks forward; the identity backward."""

    @staticmethod
    def forward(context, partial):
        """Returns the sum of all ranks' summands."""
        return sum_of_ranks(partial)

    @staticmethod
    def backward(context, dy):
        """Returns the gradient of this rank's summand."""
        return dy


def part_of(whole: torch.Tensor, dimension: int) -> torch.Tensor:
    """This rank's rows (dimension 0) or columns (1) of a whole tensor: a copy without history. Where the ranks do not divide the size,
    the first ones have one more."""
    return whole.detach().tensor_split(dist.get_world_size(), dim=dimension)[dist.get_rank()].clone()


def column_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A layer whose outputs are divided: x is whole, weight and bias are this rank's rows, and so is y."""
    return functional.linear(CopyToGroup.apply(x), weight, bias)


def row_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """A layer whose inputs are divided: x and weight are this rank's columns; bias and y are whole."""
    y = ReduceFromGroup.apply(functional.linear(x, weight))
    return y if bias is None else y + bias
