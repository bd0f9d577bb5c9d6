#include "collectives/proof/bounds.hpp"

#include <algorithm>
#include <bit>
#include <set>

#include <fmt/format.h>

namespace ringside::collectives {

constexpr double rounding = 1e-9;

Figures figures_of(const std::vector<Schedule>& schedules) {
  Figures figures;
  std::set<std::size_t> steps;  // in which a message travels: not those of a rank's own copies
  for (int rank = 0; rank < static_cast<int>(schedules.size()); ++rank) {
    const Schedule& schedule = schedules[rank];
    int out = 0, in = 0, added = 0;
    for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
      const auto& [send, receive] = schedule.steps[s];
      if (send && send->to != rank) steps.insert(s);
      if (send && send->to != rank) out += send->chunks.count;
      if (receive && receive->from != rank) in += receive->chunks.count;
      if (receive && receive->action == Action::add) added += receive->chunks.count;
    }
    figures.bytes =
        std::max(figures.bytes, static_cast<double>(std::max(out, in)) / schedule.chunks);
    figures.added = std::max(figures.added, static_cast<double>(added) / schedule.chunks);
  }
  figures.steps = static_cast<int>(steps.size());
  return figures;
}

Figures lower_bounds(Collective collective, int size) {
  using enum Collective;
  // What a rank knows at most doubles in a step.
  const int doublings = std::bit_width(static_cast<unsigned>(size - 1));
  const double others = static_cast<double>(size - 1) / size;
  Figures bounds{.steps = doublings, .bytes = others};
  if (reduces(collective)) bounds.added = others;  // (size-1) additions per element, shared by all
  if (collective == all_reduce) bounds.bytes = 2 * others;
  if (collective == broadcast || collective == reduce) bounds.bytes = size > 1 ? 1 : 0;
  if (collective == barrier) bounds.bytes = 0;
  return bounds;
}

std::string beside_bound(double figure, double bound) {
  if (bound == 0) return figure > 0 ? "needless" : "";
  const double ratio = figure / bound;
  if (ratio <= 1 + rounding) return "optimal";
  return ratio <= 2 + rounding ? "within 2x" : fmt::format("{:.1f}x", ratio);
}

bool dominates(const Figures& other, const Figures& figures) {
  const bool no_worse = other.steps <= figures.steps && other.bytes <= figures.bytes + rounding &&
                        other.added <= figures.added + rounding;
  const bool better = other.steps < figures.steps || other.bytes < figures.bytes - rounding ||
                      other.added < figures.added - rounding;
  return no_worse && better;
}

}  // namespace ringside::collectives
