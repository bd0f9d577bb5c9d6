// The messages of a step: what is wrong with them, in sentences for the author of a schedule.
#pragma once

#include <string>
#include <vector>

#include "collectives/algorithms/schedule.hpp"

namespace ringside::collectives {

// What rank `rank` does in step `step`: nothing after the end of its schedule.
const Step& step_of(const std::vector<Schedule>& schedules, int step, int rank);

// What is wrong with the messages of step `step`: one sentence for each send that nobody expects
// and each receive that nobody sends.
std::vector<std::string> disagreements(const std::vector<Schedule>& schedules, int step);

// "chunk 3", "chunks 0 to 3", "a message without payload"; a send may add "of its input".
std::string in_words(const Send& send);

}  // namespace ringside::collectives
