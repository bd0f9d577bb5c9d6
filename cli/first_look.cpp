// Draws the ring all-reduce on four ranks, like `ringside step all_reduce -n 4`. It needs few
// sources:
// ./demo builds it first, and shows it while the rest compiles.

#include <iostream>
#include <vector>

#include "cli/report/terminal.hpp"
#include "cli/views/blackboard.hpp"

int main() {
  using namespace ringside::cli;
  using namespace ringside::collectives;
  constexpr int ranks = 4;
  const Algorithm& ring = find_algorithm(Collective::all_reduce, "ring");
  const std::vector<Schedule> schedules = make_schedules(ring, ranks);
  const int steps = static_cast<int>(schedules[0].steps.size()), chunks = schedules[0].chunks;

  const Blackboard blackboard(std::cout, ring, ranks, terminal_columns(STDOUT_FILENO).value_or(100),
                              wants_colour());
  blackboard.draw_title(0, steps, chunks);
  std::vector<RankState> states = start_with_contributions(ranks, chunks, false);
  blackboard.draw_start(states);
  for (int step = 0; step < steps; ++step) {
    run_step(schedules, step, states);
    blackboard.draw_step(schedules, step, states);
  }
}
