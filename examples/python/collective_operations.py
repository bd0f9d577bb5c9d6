"""The collectives that everything else is made of: what each rank holds before and after.

RINGSIDE_AS_GLOO=1 torchrun --nproc-per-node 4 examples/python/collective_operations.py
"""

import torch
import torch.distributed as dist
from by_rank import print_by_rank


def show_all_reduce(rank, size):
    """Every rank gets the sum of all ranks' numbers."""
    data = torch.arange(size, dtype=torch.float32) + rank
    print_by_rank(f"before all_reduce      {data.tolist()}")
    dist.all_reduce(data)
    print_by_rank(f"after  all_reduce      {data.tolist()}")


def show_reduce_scatter(rank, size):
    """Rank r gets element r of the sum."""
    data, output = torch.arange(size, dtype=torch.float32) + rank, torch.empty(1)
    print_by_rank(f"before reduce_scatter  {data.tolist()}")
    dist.reduce_scatter_tensor(output, data)
    print_by_rank(f"after  reduce_scatter  {output.tolist()}")
    return output


def show_all_gather(data, size):
    """Every rank gets what each rank has."""
    output = torch.empty(size * len(data))
    print_by_rank(f"before all_gather      {data.tolist()}")
    dist.all_gather_into_tensor(output, data)
    print_by_rank(f"after  all_gather      {output.tolist()}")


def show_two_halves(rank, size):
    """An all-reduce is a reduce-scatter and then an all-gather. Another order of additions changes the
    last bits: with RINGSIDE_ALGORITHM=all_reduce=ring,reduce_scatter=ring,all_gather=ring there is one."""
    whole = torch.randn(4096 * size, generator=torch.Generator().manual_seed(rank))
    mine, halves = torch.empty(4096), torch.empty(4096 * size)
    dist.reduce_scatter_tensor(mine, whole)
    dist.all_gather_into_tensor(halves, mine)
    dist.all_reduce(whole)
    difference = (whole - halves).abs().max().item()
    print_by_rank(f"all_reduce and its two halves differ by at most {difference:.1e}")


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    show_all_reduce(rank, size)
    shares = show_reduce_scatter(rank, size)
    show_all_gather(shares, size)
    show_two_halves(rank, size)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
