#include "collectives/proof/pull.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ringside::collectives {
namespace {

using one_sided::Pull;
using one_sided::PullPlan;
using Counts = std::vector<int>;

const Receive& receive_of(const std::vector<Schedule>& schedules, int rank, int step) {
  return *schedules[static_cast<std::size_t>(rank)].steps[static_cast<std::size_t>(step)].receive;
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
    const auto& mine = schedules[static_cast<std::size_t>(r)].steps;
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
  explicit Knowledge(const std::vector<Schedule>& schedules)
      : steps_(static_cast<int>(schedules[0].steps.size())),
        before_(static_cast<std::size_t>(steps_)) {
    const std::size_t ranks = schedules.size();
    std::vector<Counts> after(ranks, Counts(ranks, 0));
    for (int s = 0; s < steps_; ++s) {
      auto& before = before_[static_cast<std::size_t>(s)];
      before = after;
      for (std::size_t r = 0; r < ranks; ++r) {
        const auto& theirs =
            after[static_cast<std::size_t>(receive_of(schedules, static_cast<int>(r), s).from)];
        for (std::size_t x = 0; x < ranks; ++x) before[r][x] = std::max(before[r][x], theirs[x]);
      }
      after = before;
      for (std::size_t r = 0; r < ranks; ++r) after[r][r] = s + 1;
    }
  }

  // How many steps of rank `of` are done for certain when rank `rank` begins step `step`.
  int known(int rank, int step, int of) const {
    return before_[static_cast<std::size_t>(step)][static_cast<std::size_t>(rank)]
                  [static_cast<std::size_t>(of)];
  }

 private:
  int steps_;
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

PullPlan pull_plan(const std::vector<Schedule>& schedules, int rank) {
  check_shape(schedules);
  check_order(schedules);
  const auto chunks = static_cast<std::size_t>(schedules[0].chunks);
  std::vector<Counts> parts(schedules.size(),
                            Counts(chunks, 1));  // [rank][chunk] how many ranks' parts are in it
  std::vector<Counts> received(schedules.size(), Counts(chunks, 0));
  PullPlan plan;
  plan.steps = static_cast<int>(schedules[0].steps.size());
  for (int s = 0; s < plan.steps; ++s) {
    const auto parts_before = parts, received_before = received;
    for (std::size_t r = 0; r < schedules.size(); ++r) {
      const Receive& receive = receive_of(schedules, static_cast<int>(r), s);
      const auto from = static_cast<std::size_t>(receive.from),
                 chunk = static_cast<std::size_t>(receive.chunks.first);
      const bool add = receive.action == Action::add;
      parts[r][chunk] = parts_before[from][chunk] + (add ? parts_before[r][chunk] : 0);
      received[r][chunk] = 1;
      if (static_cast<int>(r) != rank) continue;
      plan.pulls[s] = {.from = static_cast<std::int8_t>(from),
                       .chunk = static_cast<std::int8_t>(chunk),
                       .add = add,
                       .our_input = received_before[r][chunk] == 0,
                       .their_input = received_before[from][chunk] == 0,
                       .last = add && parts[r][chunk] == static_cast<int>(schedules.size())};
    }
  }
  return plan;
}

}  // namespace ringside::collectives
