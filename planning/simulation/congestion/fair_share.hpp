// FairShare: how flows share links, by max-min fairness.
//
// No flow can get more without taking from one that has less. This is what TCP, or a fair switch,
// approximates. All rates grow together until a link is full; the flows on it keep their rate, and
// the others grow on ("progressive filling").
//
//     link 1, capacity 10     flows a, b        at 4.5 link 2 is full: b = c = 4.5
//     link 2, capacity 9      flows b, c        then link 1:           a = 5.5
//
// Source: Bertsekas and Gallager, Data Networks, 1992, section 6.5.2.
#pragma once

#include <cstddef>
#include <vector>

namespace ringside::planning {

// A flow puts `times` its rate on a link: a flow may stand for several that do the same.
struct LinkUse {
  std::size_t link = 0;
  double times = 1;
};
using FlowPath = std::vector<LinkUse>;

// Bytes per second of each flow, where link l carries capacity[l] bytes per second. A flow without
// links gets an infinite rate.
std::vector<double> fair_rates(const std::vector<double>& capacity,
                               const std::vector<const FlowPath*>& flows);

}  // namespace ringside::planning
