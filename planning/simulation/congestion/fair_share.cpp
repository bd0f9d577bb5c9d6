#include "planning/simulation/congestion/fair_share.hpp"

#include <algorithm>
#include <limits>

namespace ringside::planning {

std::vector<double> fair_rates(const std::vector<double>& capacity,
                               const std::vector<const FlowPath*>& flows) {
  constexpr double unlimited = std::numeric_limits<double>::infinity();
  std::vector<double> rates(flows.size(), unlimited), left(capacity), growing(capacity.size(), 0);
  std::vector<std::size_t> used;  // links that carry a flow
  for (const FlowPath* flow : flows)
    for (const LinkUse& use : *flow) {
      if (growing[use.link] == 0) used.push_back(use.link);
      growing[use.link] += use.times;
    }
  std::vector<std::size_t> open;  // flows that still grow
  for (std::size_t f = 0; f < flows.size(); ++f)
    if (!flows[f]->empty()) open.push_back(f);
  const auto share_of = [&](std::size_t link) {
    return growing[link] > 1e-9 ? std::max(0.0, left[link]) / growing[link] : unlimited;
  };
  while (!open.empty()) {
    double least = unlimited;
    for (const std::size_t link : used) least = std::min(least, share_of(link));
    // Links that are full at this rate, but for rounding. Their flows keep it.
    std::vector<std::size_t> full, still_open;
    std::vector<bool> is_full(capacity.size(), false);
    for (const std::size_t link : used) is_full[link] = share_of(link) <= least * (1 + 1e-12);
    for (const std::size_t f : open) {
      const bool stops =
          std::ranges::any_of(*flows[f], [&](const LinkUse& use) { return is_full[use.link]; });
      (stops ? full : still_open).push_back(f);
    }
    for (const std::size_t f : full) {
      rates[f] = least;
      for (const LinkUse& use : *flows[f])
        left[use.link] -= use.times * least, growing[use.link] -= use.times;
    }
    open = std::move(still_open);
  }
  return rates;
}

}  // namespace ringside::planning
