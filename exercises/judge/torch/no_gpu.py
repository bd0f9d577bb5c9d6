"""For repositories of CS336's on a machine without a GPU: what only waits for a GPU, or marks and times what it does, has nothing to do there,
and groups over nccl are groups over gloo. torch calls stand_in() when it is imported (cs336.py), or a rank does.
"""
import functools
import time
import types


class Event:
    """In the place of torch.cuda.Event."""

    def __init__(self, *_, **__):
        self.time = 0.0

    def record(self, *_):
        self.time = time.perf_counter()

    def elapsed_time(self, end):
        """In milliseconds."""
        return (end.time - self.time) * 1000

    def query(self):
        return True

    def wait(self, *_):
        pass

    def synchronize(self):
        pass


def nothing(*_, **__):
    pass


def stand_in():
    import torch
    import torch.distributed as dist

    if torch.cuda.is_available():
        return
    torch.cuda.Event, torch.cuda.synchronize = Event, nothing
    torch.cuda.nvtx._nvtx = types.SimpleNamespace(rangePushA=nothing, rangePop=nothing, markA=nothing, rangeStartA=nothing, rangeEnd=nothing)
    init = dist.init_process_group

    @functools.wraps(init)
    def over_gloo(backend=None, *arguments, **options):
        return init("gloo" if backend == "nccl" else backend, *arguments, **options)

    dist.init_process_group = over_gloo
