// What an algorithm costs beside the least that any algorithm can cost, counted from its schedules.
//
// Three figures are counted: the steps in which a message travels; the bytes that the busiest rank
// sends or receives; and the elements that the busiest rank adds. The last two are fractions of the
// buffer. No algorithm is the best in all three for every collective, so there is more than one.
//
// Sources of the bounds: Chan, Heimlich, Purkayastha and van de Geijn, "Collective communication:
// theory, practice, and experience", Concurrency and Computation 19 (2007), section 3 (steps,
// bytes, additions); Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", Journal of Parallel and Distributed Computing 69 (2009), theorem 1 (bytes of an
// all-reduce).
#pragma once

#include <string>
#include <vector>

#include "collectives/algorithms/catalogue.hpp"

namespace ringside::collectives {

struct Figures {
  int steps = 0;
  double bytes = 0;  // of the busiest rank, as a fraction of the buffer: the larger of out and in
  double added = 0;  // by the busiest rank, as a fraction of the elements
};

// Of schedules[r], rank r's. All chunks count as equally long.
Figures figures_of(const std::vector<Schedule>& schedules);

// The least for that collective on `size` >= 1 ranks, each figure by itself.
Figures lower_bounds(Collective collective, int size);

// "optimal", "within 2x" or the ratio, such as "10.5x"; empty if there is nothing to do.
std::string beside_bound(double figure, double bound);

// Whether `other` is at least as good in every figure and better in one.
bool dominates(const Figures& other, const Figures& figures);

}  // namespace ringside::collectives
