// Timing: when each action of a schedule starts and ends, if every action takes a given time.
//
// A computation starts when the one before it on its rank has ended and the message that it needs
// has arrived. So the time of a step is the longest path through the actions of all ranks.
#pragma once

#include <vector>

#include "parallel/pipeline/proof/walk.hpp"
#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

// In any unit, for one stage and one micro-batch.
struct Durations {
  double forward = 1;
  double backward = 2;  // whole: I and W together
  double weight = 1;    // the part of backward that W takes; I takes the rest
  double message = 0;   // from the send until it has arrived, and how long the lane is busy

  double input() const { return backward - weight; }
  // What an action takes of its rank's time. Sends and reductions take none.
  double of(Kind kind) const;
};

struct Timing {
  std::vector<std::vector<Span>> spans;  // spans[r][i]: of schedule.actions[r][i]
  std::vector<double> busy;              // busy[r]: the sum of rank r's computations
  std::vector<double> waiting;           // waiting[r]: idle between its first and last computation
  double step = 0;                       // from the first start to the last end on any rank

  // The idle part of all ranks' time, from 0 to 1. A rank's time is the whole step: waiting for the
  // first activation counts, and so does waiting for the other ranks to finish.
  double bubble() const;
};

// Of a schedule that lower() has completed and verify() has proved. Sends never wait: a lane holds
// as many messages as it is given, and carries one at a time. Throws Error if the schedule hangs.
Timing time_of(const Schedule& lowered, const Durations& durations);

}  // namespace ringside::pipeline_parallel
