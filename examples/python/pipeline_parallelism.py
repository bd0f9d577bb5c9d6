"""Pipeline parallelism by hand: each rank has some of the layers, and micro-batches go through them.

RINGSIDE_AS_GLOO=1 torchrun --nproc-per-node 4 examples/python/pipeline_parallelism.py
"""

import torch
import torch.distributed as dist
from by_rank import print_by_rank
from torch import nn

WIDTH, ROWS, MICRO_BATCHES = 256, 64, 8


def make_stage(rank):
    torch.manual_seed(rank)
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH, bias=False),
        nn.GELU(approximate="tanh"),
        nn.Linear(WIDTH, WIDTH, bias=False),
        nn.GELU(approximate="tanh"),
    )


def drawn(stream, micro_batch):
    return torch.randn(
        ROWS, WIDTH, generator=torch.Generator().manual_seed(1000 * stream + micro_batch)
    )


def loss_of(y, micro_batch):
    return nn.functional.mse_loss(y, drawn(2, micro_batch)) / MICRO_BATCHES


def forward(stage, rank, last):
    """One call after the other, as in the lecture."""
    kept = []
    for m in range(MICRO_BATCHES):
        x = drawn(1, m) if rank == 0 else torch.empty(ROWS, WIDTH)
        if rank > 0:
            dist.recv(x, rank - 1)
        y = stage(x.requires_grad_())
        if rank < last:
            dist.send(y.detach(), rank + 1)
        kept.append((x, y))
    return kept


def backward(kept, rank, last):
    """The gradient of a receive is a send, to where the data came from."""
    for m, (x, y) in enumerate(kept):
        if rank < last:
            dy = torch.empty(ROWS, WIDTH)
            dist.recv(dy, rank + 1)
            y.backward(dy)
        else:
            loss_of(y, m).backward()
        if rank > 0:
            dist.send(x.grad, rank - 1)


def overlapped(stage, rank, last):
    """All receives are posted before the first computation, and no send is waited for before the end.
    A tag says which message it is: an activation or a gradient, of which micro-batch."""
    x = [drawn(1, m) if rank == 0 else torch.empty(ROWS, WIDTH) for m in range(MICRO_BATCHES)]
    dy = [torch.empty(ROWS, WIDTH) for _ in range(MICRO_BATCHES)]
    x_arrives = [dist.irecv(x[m], rank - 1, tag=m) for m in range(MICRO_BATCHES) if rank > 0]
    dy_arrives = [
        dist.irecv(dy[m], rank + 1, tag=MICRO_BATCHES + m)
        for m in range(MICRO_BATCHES)
        if rank < last
    ]
    y, leaving = [], []
    for m in range(MICRO_BATCHES):
        if rank > 0:
            x_arrives[m].wait()
        y.append(stage(x[m].requires_grad_()))
        if rank < last:
            leaving.append(dist.isend(y[m].detach(), rank + 1, tag=m))
    for m in range(MICRO_BATCHES):
        if rank < last:
            dy_arrives[m].wait()
            y[m].backward(dy[m])
        else:
            loss_of(y[m], m).backward()
        if rank > 0:
            leaving.append(dist.isend(x[m].grad, rank - 1, tag=MICRO_BATCHES + m))
    for work in leaving:
        work.wait()


def one_process(size):
    stages = [make_stage(rank) for rank in range(size)]
    for m in range(MICRO_BATCHES):
        loss_of(nn.Sequential(*stages)(drawn(1, m)), m).backward()
    return stages


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    wanted = one_process(size)[rank]
    plain, second = make_stage(rank), make_stage(rank)
    backward(forward(plain, rank, size - 1), rank, size - 1)
    overlapped(second, rank, size - 1)
    for name, stage in ("one call after the other", plain), ("overlapped", second):
        same = all(
            torch.equal(p.grad, q.grad) for p, q in zip(stage.parameters(), wanted.parameters())
        )
        print_by_rank(
            f"{name:<24}  gradients with {'the same' if same else 'other'} bits as one process"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
