#include "collectives/proof/pull.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ringside::collectives {
namespace {

using one_sided::Pull;
using one_sided::PullSchedule;
using Counts = std::vector<int>;

const Receive& receive_of(const std::vector<Schedule>& schedules, int rank, int step) {
  return *schedules[rank].steps[step].receive;
}

void check_shape(const std::vector<Schedule>& schedules) {
  const auto ranks = static_cast<int>(schedules.size());
  require(ranks >= 1 && ranks <= one_sided::most_ranks,
          "a plan to pull is for 1 to {} ranks, not {}", one_sided::most_ranks, ranks);
  const auto steps = schedules[0].steps.size();
  require(steps <= one_sided::most_steps,
          "a plan to pull has at most {} steps, and this schedule has {}", one_sided::most_steps,
          steps);
  require(schedules[0].chunks <= one_sided::most_ranks,
          "a plan to pull has at most {} chunks, and this schedule has {}", one_sided::most_ranks,
          schedules[0].chunks);
  for (int r = 0; r < ranks; ++r) {
    const auto& mine = schedules[r].steps;
    require(mine.size() == steps, "rank {} takes {} steps and rank 0 {}: these ranks cannot pull",
            r, mine.size(), steps);
    for (std::size_t s = 0; s < steps; ++s)
      require(mine[s].receive && mine[s].receive->chunks.count == 1,
              "rank {} does not receive one chunk in step {}: it cannot pull", r, s);
  }
}

// What each rank knows of the others' progress. A rank that waits for another learns all that the
// other knows.
class Knowledge {
 public:
  explicit Knowledge(const std::vector<Schedule>& schedules) : before_(schedules[0].steps.size()) {
    const int ranks = static_cast<int>(schedules.size());
    std::vector<Counts> after(ranks, Counts(ranks, 0));
    for (int s = 0; s < static_cast<int>(before_.size()); ++s) {
      std::vector<Counts>& before = before_[s];
      before = after;
      for (int r = 0; r < ranks; ++r) {
        const Counts& theirs = after[receive_of(schedules, r, s).from];
        for (int x = 0; x < ranks; ++x) before[r][x] = std::max(before[r][x], theirs[x]);
      }
      after = before;
      for (int r = 0; r < ranks; ++r) after[r][r] = s + 1;
    }
  }

  // How many steps of rank `of` are done for certain when rank `rank` begins step `step`.
  int known(int rank, int step, int of) const { return before_[step][rank][of]; }

 private:
  std::vector<std::vector<Counts>> before_;  // [step][rank][of]
};

// A rank that writes a chunk in a step must know that all ranks that read it in an earlier step, or
// in the same one, are done.
void check_order(const std::vector<Schedule>& schedules) {
  const Knowledge knowledge(schedules);
  const auto ranks = static_cast<int>(schedules.size()),
             steps = static_cast<int>(schedules[0].steps.size());
  for (int reader = 0; reader < ranks; ++reader)
    for (int s = 0; s < steps; ++s) {
      const Receive& read = receive_of(schedules, reader, s);
      for (int later = s; later < steps; ++later) {
        const bool writes =
            receive_of(schedules, read.from, later).chunks.first == read.chunks.first;
        require(!writes || knowledge.known(read.from, later, reader) > s,
                "this schedule cannot be pulled: rank {} writes chunk {} in step {}, and cannot "
                "know whether rank {}, which reads it in step {}, has",
                read.from, read.chunks.first, later, reader, s);
      }
    }
}

}  // namespace

PullSchedule pull_plan(const std::vector<Schedule>& schedules, int rank) {
  check_shape(schedules);
  check_order(schedules);
  const int ranks = static_cast<int>(schedules.size()), chunks = schedules[0].chunks;
  std::vector<Counts> parts(ranks, Counts(chunks, 1));  // [rank][chunk] how many ranks' are in it
  std::vector<Counts> received(ranks, Counts(chunks, 0));
  PullSchedule plan;
  plan.steps = static_cast<int>(schedules[0].steps.size());
  for (int s = 0; s < plan.steps; ++s) {
    const auto parts_before = parts, received_before = received;
    for (int r = 0; r < ranks; ++r) {
      const Receive& receive = receive_of(schedules, r, s);
      const int from = receive.from, chunk = receive.chunks.first;
      const bool add = receive.action == Action::add;
      parts[r][chunk] = parts_before[from][chunk] + (add ? parts_before[r][chunk] : 0);
      received[r][chunk] = 1;
      if (r != rank) continue;
      plan.pulls[s] = {.from = static_cast<std::int8_t>(from),
                       .chunk = static_cast<std::int8_t>(chunk),
                       .add = add,
                       .our_input = received_before[r][chunk] == 0,
                       .their_input = received_before[from][chunk] == 0,
                       .last = add && parts[r][chunk] == ranks};
    }
  }
  return plan;
}

}  // namespace ringside::collectives
