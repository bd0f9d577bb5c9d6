"""Runs a function on several ranks, each a process, and collects what they raise."""

import multiprocessing
import os
import tempfile
import traceback
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist


def _rank(function, rank, size, folder, arguments, errors):
    torch.set_num_threads(1)
    torch.manual_seed(7)
    warnings.simplefilter("ignore")
    try:
        function(rank, size, folder, *arguments)
        errors.put((rank, None))
    except BaseException:
        errors.put((rank, traceback.format_exc()))
    finally:
        errors.close()
        errors.join_thread()
    os._exit(0)


def on_ranks(function, size, *arguments, dead=()):
    """function(rank, size, folder, ...) on each rank; those in `dead` end without a word."""
    context = multiprocessing.get_context("fork")  # torch is imported once
    errors = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=_rank, args=(function, r, size, folder, arguments, errors))
            for r in range(size)
        ]
        for process in ranks:
            process.start()
        told = {}
        while len(told) < size - len(dead):
            rank, error = errors.get(timeout=100)
            told[rank] = error
        for process in ranks:
            process.join()
    failed = [f"rank {rank}:\n{error}" for rank, error in sorted(told.items()) if error]
    assert not failed, "\n".join(failed)


def begin(rank, size, folder, backend="ringside", seconds=30, name="store"):
    dist.init_process_group(
        backend,
        init_method=f"file://{folder}/{name}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=seconds),
    )
