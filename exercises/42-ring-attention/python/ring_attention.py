"""Causal attention of one head over a sequence whose tokens are divided among ranks: keys and values travel round the ring, and each rank
merges what its queries see of them."""
from __future__ import annotations

import dataclasses
import math
from typing import Callable

import torch
import torch.distributed as dist


@dataclasses.dataclass
class Partial:
    """Attention of n queries to the keys that they have seen so far. For each query: `total` is the sum of exp(score - shift) over these
    keys, `sum` that of exp(score - shift) v, and sum / total is the output of attention. Any `shift` gives the same quotient. attend()
    takes the largest score, so that no exp() overflows."""

    shift: torch.Tensor  # [n]
    total: torch.Tensor  # [n]
    sum: torch.Tensor  # [n, width]


def nothing(queries: int, width: int) -> Partial:
    """Of queries that have seen no key."""
    return Partial(torch.full((queries,), -math.inf), torch.zeros(queries), torch.zeros(queries, width))


# attend(queries [n, width], keys [m, width], values [m, width], first_query, first_key): attention of queries to keys whose first rows are
# the tokens first_query and first_key of the whole sequence. A query sees the keys up to its own position. It computes n m scores, also
# those that no query sees.
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int, int], Partial]


class Exchange:
    """`sent` goes to rank `to` while `received` arrives from rank `source`. Until wait() has returned, leave the memory alone."""

    def __init__(self, sent: torch.Tensor, to: int, received: torch.Tensor, source: int):
        self.works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, to), dist.P2POp(dist.irecv, received, source)])

    def wait(self) -> None:
        for work in self.works:
            work.wait()


def pieces_of(ranks: int, rank: int) -> list[int]:
    """The two of 2 `ranks` pieces of the sequence that `rank` holds, ascending."""
    return [rank, 2 * ranks - 1 - rank]


def merge(seen: Partial, more: Partial) -> None:
    """Adds to `seen` what the same queries see of further keys."""
    shift = torch.maximum(seen.shift, more.shift)
    safe = torch.where(shift == -math.inf, 0.0, shift)  # of queries that have seen no key
    old, added = torch.exp(seen.shift - safe), torch.exp(more.shift - safe)
    seen.shift = shift
    seen.total = old * seen.total + added * more.total
    seen.sum = old[:, None] * seen.sum + added[:, None] * more.sum


def ring_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attend: Attend) -> torch.Tensor:
    """q, k and v [2 n, width]: the two pieces of this rank, of n tokens each, one after the other. Returns the output of attention for its
    queries, in the same order."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    following, before = (rank + 1) % ranks, (rank - 1) % ranks
    tokens, width = q.shape[0] // 2, q.shape[1]
    own = pieces_of(ranks, rank)

    seen = [nothing(tokens, width) for _ in range(2)]
    here = torch.stack([k, v])
    for step in range(ranks):
        arriving, exchange = torch.empty_like(here), None
        if step + 1 < ranks:
            exchange = Exchange(here, following, arriving, before)
        theirs = pieces_of(ranks, (rank - step) % ranks)
        keys, values = here[0].split(tokens), here[1].split(tokens)
        for i, queries in enumerate(q.split(tokens)):
            for j in range(2):
                if theirs[j] > own[i]:
                    continue  # all of these keys are in the future
                merge(seen[i], attend(queries, keys[j], values[j], own[i] * tokens, theirs[j] * tokens))
        if exchange:
            exchange.wait()
        here = arriving
    return torch.cat([each.sum / each.total[:, None] for each in seen])
