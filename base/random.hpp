// Random numbers that are pure functions of their arguments, so that any rank can compute the
// numbers of any other.
//
// A counter-based generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011)
// that mixes bits with the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
// random_bits(seed, stream, i) is number i of a stream, computed without the numbers before it.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace ringside {

constexpr std::uint64_t mix_bits(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

constexpr std::uint64_t hash_of_text(std::string_view text) {
  std::uint64_t hash = 0;
  for (const char c : text) hash = mix_bits(hash + static_cast<unsigned char>(c) + 1);
  return hash;
}

constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream,
                                    std::uint64_t counter) {
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;
  return mix_bits(mix_bits(mix_bits(seed + golden) + (stream + 1) * golden) +
                  (counter + 1) * golden);
}

// Uniform in [0, 1).
constexpr double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  return static_cast<double>(random_bits(seed, stream, counter) >> 11) * 0x1p-53;
}

// Uniform in 0..n-1, n > 0. The bias of the remainder, n / 2^64, is negligible.
constexpr std::uint64_t random_below(std::uint64_t n, std::uint64_t seed, std::uint64_t stream,
                                     std::uint64_t counter) {
  return random_bits(seed, stream, counter) % n;
}

// Standard normal: the Box-Muller transform of two uniform numbers.
inline double random_normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  // u is in (0, 1], so its logarithm is finite.
  const double u = 1.0 - random_uniform(seed, stream, 2 * counter);
  const double v = random_uniform(seed, stream, 2 * counter + 1);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace ringside
