"""Ranks that compute more slowly than others: the random numbers of base/random.hpp."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Dict, Tuple

from ringside.planning.network import RankGroup

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix_bits(z: int) -> int:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014), of 64 bits."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


@lru_cache(maxsize=1 << 20)
def stream_of(seed: int, stream: int) -> int:
    """Where the numbers of a stream begin."""
    return mix_bits(mix_bits(seed + GOLDEN & MASK) + (stream + 1) * GOLDEN & MASK)


def random_uniform(seed: int, stream: int, counter: int) -> float:
    """Number `counter` of a stream, in [0, 1)."""
    z = stream_of(seed, stream) + (counter + 1) * GOLDEN & MASK
    return (mix_bits(z) >> 11) * 2.0**-53


@dataclass
class Stragglers:
    """`slow` has the factor on the time of a rank's computations. With `jitter` each computation
    takes up to this share longer, uniformly at random: 0.1 stands for 0 to 10 %."""

    slow: Dict[int, float] = field(default_factory=dict)
    jitter: float = 0.0
    seed: int = 0

    def any(self) -> bool:
        return bool(self.slow) or self.jitter > 0

    def factors(self, unit: RankGroup, computation: int) -> Tuple[float, ...]:
        """What a computation takes on each rank, as a multiple of its undisturbed time."""
        seed, jitter = self.seed, self.jitter
        factors = [self.slow.get(rank, 1.0) for rank in unit.ranks]
        if jitter > 0:
            longer = [1 + jitter * random_uniform(seed, rank, computation) for rank in unit.ranks]
            factors = [a * b for a, b in zip(factors, longer)]
        return tuple(factors)
