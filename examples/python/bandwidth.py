"""How fast an all-reduce and a reduce-scatter are. examples/bandwidth.cpp says what bandwidth means.

RINGSIDE_AS_GLOO=1 torchrun --nproc-per-node 4 examples/python/bandwidth.py
"""

import time

import torch
import torch.distributed as dist
from by_rank import print_by_rank


def seconds_of(call):
    """The time of one call, from when all ranks are ready."""
    dist.barrier()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(name, size, sent_by_all, call):
    cold = seconds_of(call)
    warm = sorted(seconds_of(call) for _ in range(5))[2]
    print_by_rank(
        f"{name:<14} cold {cold * 1e3:6.2f} ms  warm {warm * 1e3:6.2f} ms  "
        f"{sent_by_all / (size * warm) / 1e9:5.2f} GB/s"
    )


def main():
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    data = torch.ones(1_000_000 // size * size)
    part = torch.empty(len(data) // size)
    size_in_bytes = data.numel() * data.element_size()
    measure(
        "all_reduce",
        size,
        2 * (size - 1) * size_in_bytes,
        lambda: dist.all_reduce(data, dist.ReduceOp.MAX),
    )
    measure(
        "reduce_scatter",
        size,
        (size - 1) * size_in_bytes,
        lambda: dist.reduce_scatter_tensor(part, data, dist.ReduceOp.MAX),
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
