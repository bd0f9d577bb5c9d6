"""Ringside's collectives in Python: a backend of torch.distributed (docs/pytorch.md).

    import torch.distributed as dist
    dist.init_process_group("ringside")

Where the package is installed, torch finds the backend by itself when it is imported.
"""

from ringside.library import RingsideError, Group

__all__ = ["Group", "RingsideError"]
