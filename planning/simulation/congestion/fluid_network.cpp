#include "planning/simulation/congestion/fluid_network.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace ringside::planning {

std::size_t FluidNetwork::level_between(std::int64_t from, std::int64_t to) const {
  return levels_.level_of({std::min(from, to), 2, std::abs(from - to)});
}

double FluidNetwork::latency(std::int64_t from, std::int64_t to) const {
  return machine_.levels[level_between(from, to)].latency;
}

std::size_t FluidNetwork::link(Kind kind, std::size_t level, std::int64_t owner, double capacity) {
  const auto [at, is_new] = known_.try_emplace({kind, level, owner}, capacity_.size());
  if (is_new) capacity_.push_back(capacity);
  return at->second;
}

void FluidNetwork::add_hop(FlowPath& path, const RankGroup& group, std::int64_t place,
                           double times) {
  const auto rank = [&](std::int64_t i) { return group.first + i % group.count * group.stride; };
  const std::int64_t from = rank(place), to = rank(place + 1);
  const std::int64_t channels =
      level_between(from, to) == 0 ? 1 : machine_.ranks_on_server(group.count, group.stride);
  // Channel c leaves by the card of the c-th rank of this server, and comes in by that of the next.
  for (std::int64_t c = 0; c < channels; ++c)
    add_path(path, rank(place + group.count - c), rank(place + channels - c), times,
             1 / static_cast<double>(channels));
}

void FluidNetwork::add_path(FlowPath& path, std::int64_t from, std::int64_t to, double times,
                            double share) {
  const std::size_t widest = level_between(from, to);
  const auto rate = [&](std::size_t level) {
    return machine_.levels[level].bytes_per_second * machine_.levels[level].efficiency;
  };
  path.push_back({link(Kind::out, widest, from, rate(widest)), share});
  path.push_back({link(Kind::in, widest, to, rate(widest)), share});
  for (std::size_t level = 1; level <= widest; ++level) {
    // Without oversubscription the ports are slower.
    if (machine_.level_along(level, from - to).oversubscription == 1) continue;
    const std::int64_t size = machine_.levels[level - 1].group;
    const double capacity =
        static_cast<double>(size) * rate(level) / machine_.levels[level].oversubscription;
    path.push_back({link(Kind::up, level, from / size, capacity), share * times});
    path.push_back({link(Kind::down, level, to / size, capacity), share * times});
  }
}

void FluidNetwork::start(std::size_t id, const FlowPath& path, double bytes) {
  flows_.push_back({id, &path, bytes, 0});
  changed_ = true;
}

void FluidNetwork::share() {
  std::vector<const FlowPath*> paths;
  for (const Flow& flow : flows_) paths.push_back(flow.path);
  const std::vector<double> rates = fair_rates(capacity_, paths);
  for (std::size_t i = 0; i < flows_.size(); ++i) flows_[i].rate = rates[i];
  changed_ = false;
}

double FluidNetwork::next_end() {
  if (changed_) share();
  double end = std::numeric_limits<double>::infinity();
  for (const Flow& flow : flows_) end = std::min(end, now_ + flow.bytes / flow.rate);
  return end;
}

std::vector<std::size_t> FluidNetwork::advance(double time) {
  std::vector<std::size_t> ended;
  const double seconds = time - now_;
  std::vector<Flow> left;
  for (Flow& flow : flows_) {
    const double end = now_ + flow.bytes / flow.rate;
    // Flows that end at the same moment but for rounding end together.
    if (end <= time + 1e-12 * (1 + time)) {
      ended.push_back(flow.id);
      continue;
    }
    flow.bytes -= flow.rate * seconds;
    left.push_back(flow);
  }
  if (!ended.empty()) changed_ = true;
  flows_ = std::move(left);
  now_ = time;
  return ended;
}

}  // namespace ringside::planning
