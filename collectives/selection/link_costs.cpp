#include "collectives/selection/link_costs.hpp"

#include <algorithm>

#include "collectives/selection/calibration.hpp"

namespace ringside::collectives {

MachineCosts costs_behind(const Link& link, MachineCosts costs) {
  costs.common.alpha += link.latency.count();
  costs.common.announced_bytes = 0;
  for (auto& bytes : costs.per_byte) bytes.beta += 1 / link.bytes_per_second;
  return costs;
}

AlgorithmSelection selection_behind(AlgorithmSelection algorithms, const std::optional<Link>& link,
                                    std::string_view transport, int hosts) {
  if (!link || algorithms.costs()) return algorithms;
  MachineCosts costs = costs_behind(*link, costs_here(transport));
  costs.common.cores *= std::max(1, hosts);
  algorithms.set_costs(costs);
  return algorithms;
}

}  // namespace ringside::collectives
