// Stragglers: ranks that compute more slowly than others.
#pragma once

#include <cstdint>
#include <map>

#include "base/random.hpp"

namespace ringside::planning {

struct Stragglers {
  std::map<std::int64_t, double> slow;  // rank -> factor on the time of its computations
  // Each computation takes up to this share longer, uniformly at random: 0.1 stands for 0 to 10 %.
  double jitter = 0;
  std::uint64_t seed = 0;

  bool any() const { return !slow.empty() || jitter > 0; }

  // What the `computation`-th computation of a rank takes, as a multiple of its undisturbed time.
  // A pure function, so that the order of the simulation does not matter.
  double factor(std::int64_t rank, std::uint64_t computation) const {
    const auto found = slow.find(rank);
    const double constant = found == slow.end() ? 1 : found->second;
    if (jitter == 0) return constant;
    return constant *
           (1 + jitter * random_uniform(seed, static_cast<std::uint64_t>(rank), computation));
  }
};

}  // namespace ringside::planning
