#include "parallel/pipeline/proof/timing.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace ringside::pipeline_parallel {

double Durations::of(Kind kind) const {
  switch (kind) {
    case Kind::forward:
      return forward;
    case Kind::backward:
      return backward;
    case Kind::backward_input:
      return input();
    case Kind::backward_weight:
      return weight;
    default:
      return 0;
  }
}

double Timing::bubble() const {
  const double all = step * static_cast<double>(busy.size());
  return all > 0 ? 1 - std::accumulate(busy.begin(), busy.end(), 0.0) / all : 0;
}

Timing time_of(const Schedule& lowered, const Durations& durations) {
  require(durations.forward >= 0 && durations.weight >= 0 && durations.message >= 0,
          "durations must not be negative");
  require(durations.weight <= durations.backward,
          "W is a part of backward, so it cannot take {:g} where backward takes {:g}",
          durations.weight, durations.backward);
  const Places places(lowered);
  Clocks clocks(lowered, places);
  for (const Place& at : in_order(lowered, places)) {
    const Kind kind = lowered.actions[at.rank][at.index].kind;
    if (is_send(kind))
      clocks.send(at, durations.message);
    else if (is_receive(kind))
      clocks.receive(at);
    else
      clocks.compute(at, durations.of(kind));
  }
  Timing timing;
  timing.spans = std::move(clocks.spans);
  for (int rank = 0; rank < lowered.ranks(); ++rank) {
    double busy = 0, waiting = 0, last_end = -1;  // -1: no computation yet
    for (std::size_t i = 0; i < lowered.actions[rank].size(); ++i) {
      const auto [start, end] = timing.spans[rank][i];
      if (!is_computation(lowered.actions[rank][i].kind)) continue;
      busy += durations.of(lowered.actions[rank][i].kind);
      if (last_end >= 0) waiting += start - last_end;
      last_end = end;
    }
    timing.busy.push_back(busy);
    timing.waiting.push_back(waiting);
    timing.step = std::max(timing.step, last_end);
  }
  return timing;
}

}  // namespace ringside::pipeline_parallel
