"""Ringside in Python: its commands, algorithms of your own, and a backend of torch.distributed.

    ringside.step("ring_all_reduce", n=4)      what `ringside step ring_all_reduce -n 4` shows
    @ringside.algorithm("all_reduce")          an algorithm as a function (docs/python.md)

    import torch.distributed as dist
    dist.init_process_group("ringside")        a PyTorch program over Ringside (docs/pytorch.md)

Only the backend needs torch. Where the package is installed, torch finds it by itself.
"""

from ringside.algorithms import Algorithm, algorithm, receive, send
from ringside.library import Group, RankFailure, RingsideError
from ringside.program import Command, CommandError, Result

# Not eval, which is a name of Python, nor launch, watch and status, which are for a terminal.
COMMANDS = (
    "step",
    "prove",
    "synthesize",
    "msccl",
    "hello",
    "bench",
    "train",
    "compare",
    "timeline",
    "nccl",
    "generate",
    "tokenize",
    "account",
    "simulate",
    "postmortem",
    "course",
)
globals().update({name: Command(name) for name in COMMANDS})

__all__ = [
    "Algorithm",
    "CommandError",
    "Group",
    "RankFailure",
    "Result",
    "RingsideError",
    "algorithm",
    "receive",
    "send",
    *COMMANDS,
]
