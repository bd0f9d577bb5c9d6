#include "planning/simulation/network.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/error.hpp"
#include "planning/collective_time.hpp"

namespace ringside::planning {

std::size_t Network::level_of(const RankGroup& group) const {
  for (std::size_t i = 0; i < machine_.levels.size(); ++i) {
    const std::int64_t size = machine_.levels[i].group;
    if (group.first / size == group.last() / size) return i;
  }
  fail("ranks {} and {} are in different groups of {}, the widest level of {}", group.first,
       group.last(), machine_.levels.back().name, machine_.name);
}

double Network::message_seconds(std::int64_t from, std::int64_t to, double bytes) const {
  const Level level = level_along({std::min(from, to), 2, std::abs(from - to)});
  return level.latency + bytes / level.rate();
}

double Network::collective_seconds(collectives::Collective collective, const RankGroup& group,
                                   double bytes) {
  if (group.count < 2) return 0;
  const Level ring = level_of_ring(group);
  const auto [known, is_new] = known_.try_emplace(
      {collective, group.count, level_of(group), 1 / ring.rate(), ring.latency, bytes}, 0.0);
  if (!is_new) return known->second;
  return known->second = planning::collective_seconds(collective, level_of(group), group.count,
                                                      group.stride, bytes, machine_);
}

}  // namespace ringside::planning
