// FILL IN: what is judged, and what is free.
#include <fmt/format.h>

#include "exercises/judge/judge.hpp"
#include "interface.hpp"

namespace ringside::exercises {
namespace {

constexpr int largest = 8;

// Runs beside the student's code, in one process for each rank of a world: world.rank(),
// world.size(), world.group() for collectives. What it returns goes to judge_...() as JSON.
// FILL IN: call the student's functions, with data of world.number(low, high, which).
Json collect(World&) {
  Json seen = Json::array();
  for (int size = 1; size <= largest; ++size)
    for (int rank = 0; rank < size; ++rank) seen.push_back(student_new_exercise(size, rank));
  return seen;
}

// Runs without the student's code. run.ranks[r] is what rank r collected.
// FILL IN: compare, and say what was seen, where, and what was expected.
Verdict judge_result(const Run& run) {
  std::size_t at = 0;
  for (int size = 1; size <= largest; ++size)
    for (int rank = 0; rank < size; ++rank) {
      const int seen = run.ranks[0].at(at++);
      if (seen != (rank + 1) % size)
        return {{fmt::format("size {}, rank {}: {}, expected {}", size, rank, seen,
                             (rank + 1) % size)}};
    }
  return {};
}

// FILL IN: one judge_...() for each case of exercise.json.
Verdict judge_sizes(const Run& run) {
  return judge_result(run);
}

const Judge judge("NN-new-exercise",
                  {{"result", collect, judge_result}, {"sizes", collect, judge_sizes}});

}  // namespace
}  // namespace ringside::exercises
