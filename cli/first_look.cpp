// Draws the ring all-reduce on four ranks, like `ringside step all_reduce -n 4`. It needs few
// sources:
// ./demo builds it first, and shows it while the rest compiles.

#include <iostream>
#include <vector>

#include "cli/pictures/schedule/step_table.hpp"
#include "cli/pictures/terminal.hpp"

int main() {
  using namespace ringside::cli;
  using namespace ringside::collectives;
  constexpr int ranks = 4;
  const Algorithm& ring = find_algorithm(Collective::all_reduce, "ring");
  const std::vector<Schedule> schedules = make_schedules(ring, ranks);
  const int steps = static_cast<int>(schedules[0].steps.size()), chunks = schedules[0].chunks;

  const StepTable table(std::cout, ring, ranks, terminal_columns(STDOUT_FILENO).value_or(100),
                        wants_colour());
  table.draw_title(0, steps, chunks);
  std::vector<RankState> states = start_with_contributions(ranks, chunks, false);
  table.draw_start(states);
  for (int step = 0; step < steps; ++step) {
    run_step(schedules, step, states);
    table.draw_step(schedules, step, states);
  }
}
