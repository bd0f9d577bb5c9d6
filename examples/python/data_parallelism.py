"""Data parallelism by hand: each rank has the whole model and a part of the batch.

RINGSIDE_AS_GLOO=1 torchrun --nproc-per-node 4 examples/python/data_parallelism.py
"""

import torch
import torch.distributed as dist
from by_rank import print_by_rank
from torch import nn

FEATURES, HIDDEN, ROWS_PER_RANK, STEPS = 32, 128, 16, 3


def make_model():
    torch.manual_seed(1)  # all ranks begin with the same parameters
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.GELU(approximate="tanh"), nn.Linear(HIDDEN, FEATURES)
    )


def average_gradients(model, size):
    """All that data parallelism adds to a step."""
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= size


def train_step(model, optimizer, x, y, size=1):
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    if size > 1:
        average_gradients(model, size)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    batch = torch.Generator().manual_seed(2)
    x, y = torch.randn(2, ROWS_PER_RANK * size, FEATURES, generator=batch)
    own = slice(rank * ROWS_PER_RANK, (rank + 1) * ROWS_PER_RANK)

    model, alone = (
        make_model(),
        make_model(),
    )  # `alone` is trained by one process, on the whole batch
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    its_optimizer = torch.optim.SGD(alone.parameters(), 0.1)
    for step in range(STEPS):
        loss = train_step(model, optimizer, x[own], y[own], size)
        train_step(alone, its_optimizer, x, y)
        total = torch.cat([p.detach().double().flatten() for p in model.parameters()]).sum().item()
        print_by_rank(f"step {step}  loss {loss:.6f}  sum of parameters {total:.9f}")
    largest = max(
        (p - q).abs().max().item() for p, q in zip(model.parameters(), alone.parameters())
    )
    print_by_rank(f"largest difference from one process {largest:.1e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
