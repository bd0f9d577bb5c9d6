"""Tensor parallelism by hand: two ways to divide the matrices, forward and backward.

    RINGSIDE_AS_GLOO=1 torchrun --nproc-per-node 4 examples/python/tensor_parallelism.py

A layer is y = x Wᵀ. Rank r has rows of W (columns of y), or columns of W (a term of y).
"""

import torch
import torch.distributed as dist
from by_rank import print_by_rank
from torch.nn.functional import gelu, linear

BATCH = 32


class AllGather(torch.autograd.Function):
    """Columns of all ranks, side by side. The gradient is a reduce-scatter: every rank used this rank's
    columns, so their gradient is the sum of what all ranks say about them."""

    @staticmethod
    def forward(_, own):
        parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, own.contiguous())
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(_, gradient):
        parts = [part.contiguous() for part in gradient.chunk(dist.get_world_size(), dim=1)]
        own = torch.empty_like(parts[0])
        dist.reduce_scatter(own, parts)
        return own


class Sum(torch.autograd.Function):
    """The sum of all ranks' terms (Megatron's g). Each term has the gradient of the sum."""

    @staticmethod
    def forward(_, term):
        total = term.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_, gradient):
        return gradient


class Copy(torch.autograd.Function):
    """x for all ranks (Megatron's f). Every rank used it: the gradient is the sum of theirs."""

    @staticmethod
    def forward(_, x):
        return x.view_as(x)

    @staticmethod
    def backward(_, gradient):
        total = gradient.clone()
        dist.all_reduce(total)
        return total


def gathered(x, weights):
    """As in the lecture: each rank has rows of every matrix. The last output is not gathered: each rank
    computes the loss of its own columns."""
    hidden = AllGather.apply(gelu(linear(x, weights[0]), approximate="tanh"))
    return linear(hidden, weights[1])


def pair(x, weights):
    """Megatron's: rows of the first matrix, columns of the second. What lies between stays on its rank."""
    return Sum.apply(
        linear(gelu(linear(Copy.apply(x), weights[0]), approximate="tanh"), weights[1])
    )


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    features = 16 * size
    x, target = torch.randn(2, BATCH, features)
    up, down = torch.randn(4 * features, features) / 8, torch.randn(features, 4 * features) / 8

    def own(tensor, dim):
        return tensor.chunk(size, dim)[rank]

    def gradients(forward, weights, goal):
        weights = [weight.clone().requires_grad_() for weight in weights]
        ((forward(x, weights) - goal) ** 2).sum().backward()
        return [weight.grad for weight in weights]

    def one_process(x, weights):
        return linear(gelu(linear(x, weights[0]), approximate="tanh"), weights[1])

    up_gradient, down_gradient = gradients(one_process, [up, down], target)
    for name, forward, dim, goal in [
        ("all-gather", gathered, 0, own(target, 1)),
        ("pair", pair, 1, target),
    ]:
        mine = gradients(forward, [own(up, 0), own(down, dim)], goal)
        wanted = own(up_gradient, 0), own(down_gradient, dim)
        relative = max(((a - b).norm() / b.norm()).item() for a, b in zip(mine, wanted))
        print_by_rank(
            f"{name:<10}  gradients differ from one process by {relative:.1e} of their norm"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
