"""Ranks that compute more slowly than others: the random numbers of base/random.hpp."""

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence

from ringside.planning.network import RankGroup

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix_bits(z: int) -> int:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014), of 64 bits."""
    z = (z ^ (z >> 30)) * FIRST & MASK
    z = (z ^ (z >> 27)) * SECOND & MASK
    return z ^ (z >> 31)


def random_uniform(seed: int, stream: int, counter: int) -> float:
    """Number `counter` of a stream, in [0, 1)."""
    z = mix_bits(mix_bits(seed + GOLDEN & MASK) + (stream + 1) * GOLDEN & MASK)
    return (mix_bits(z + (counter + 1) * GOLDEN & MASK) >> 11) * 2.0**-53


@dataclass
class Stragglers:
    """`slow` has the factor on the time of a rank's computations. With `jitter` each computation
    takes up to this share longer, uniformly at random: 0.1 stands for 0 to 10 %."""

    slow: Dict[int, float] = field(default_factory=dict)
    jitter: float = 0.0
    seed: int = 0
    _streams: Dict[RankGroup, List[int]] = field(default_factory=dict, repr=False, compare=False)

    def any(self) -> bool:
        return bool(self.slow) or self.jitter > 0

    def factor(self, rank: int, computation: int) -> float:
        """What a rank's computation takes, as a multiple of its undisturbed time."""
        constant = self.slow.get(rank, 1.0)
        if self.jitter == 0:
            return constant
        return constant * (1 + self.jitter * random_uniform(self.seed, rank, computation))

    def slowest(self, units: Sequence[RankGroup], computation: int) -> Optional[List[float]]:
        """The factor of the slowest rank of each unit; None where nobody is slow."""
        if not self.any():
            return None
        if self.slow or self.jitter == 0:
            return [
                max(
                    self.factor(unit.first + i * unit.stride, computation)
                    for i in range(unit.count)
                )
                for unit in units
            ]
        # Millions of numbers, so mix_bits() stands here once more.
        number, factors = (computation + 1) * GOLDEN & MASK, []
        for unit in units:
            most = 0
            for stream in self._streams_of(unit):
                z = stream + number & MASK
                z = (z ^ (z >> 30)) * FIRST & MASK
                z = (z ^ (z >> 27)) * SECOND & MASK
                z ^= z >> 31
                if z > most:
                    most = z
            factors.append(1 + self.jitter * ((most >> 11) * 2.0**-53))
        return factors

    def _streams_of(self, unit: RankGroup) -> List[int]:
        """The state of each rank's stream."""
        if unit not in self._streams:
            seed = mix_bits(self.seed + GOLDEN & MASK)
            self._streams[unit] = [
                mix_bits(seed + (unit.first + i * unit.stride + 1) * GOLDEN & MASK)
                for i in range(unit.count)
            ]
        return self._streams[unit]
