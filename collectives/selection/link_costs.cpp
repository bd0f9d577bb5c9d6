#include "collectives/selection/link_costs.hpp"

namespace ringside::collectives {

MachineCosts costs_behind(const Link& link, MachineCosts costs) {
  costs.common.alpha += link.latency.count();
  for (auto& bytes : costs.per_byte) bytes.beta += 1 / link.bytes_per_second;
  return costs;
}

}  // namespace ringside::collectives
