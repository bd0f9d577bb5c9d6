// Judges a barrier by its schedules for 1 to 16 ranks.
#include "collectives/proof/disagreements.hpp"
#include "exercises/04-barrier/interface.hpp"
#include "exercises/judge/collectives/schedule_faults.hpp"
#include "exercises/judge/program.hpp"

namespace ringside::exercises {
namespace {

using namespace collectives;

constexpr int largest = 16;

Json collect_schedules(World&) {
  return schedules_up_to(largest, [](int size, int rank) { return student_barrier(size, rank); });
}

// At the end everybody has heard from everybody, directly or through others.
Verdict judge_promise(const Run& run) {
  return fault_of_promise(Collective::barrier, largest,
                          [&run](int size, int) { return schedules_of(run.ranks[0], size); });
}

Verdict judge_steps(const Run& run) {
  for (int size = 1; size <= largest; ++size) {
    const Schedules schedules = schedules_of(run.ranks[0], size);
    const std::string fault = fault_of_logarithm(schedules);
    if (!fault.empty())
      return {{fmt::format("world {}: {}", size, fault)},
              drawing_of(Collective::barrier, schedules)};
  }
  return {};
}

// A barrier moves no data: all messages have 0 chunks.
Verdict judge_payload(const Run& run) {
  for (int size = 2; size <= largest; ++size) {
    const Schedules schedules = schedules_of(run.ranks[0], size);
    for (int rank = 0; rank < size; ++rank)
      for (std::size_t s = 0; s < schedules[rank].steps.size(); ++s) {
        const std::optional<Send>& send = schedules[rank].steps[s].send;
        if (send && send->chunks.count > 0)
          return {
              {fmt::format("world {}, rank {}, step {}: sends {} to rank {}, expected a "
                           "message without payload",
                           size, rank, s, in_words(*send), send->to)}};
      }
  }
  return {};
}

void by_program() {
  answer_by_program(student_barrier, "dissemination_barrier");
}

const Judge judge("04-barrier",
                  {{"promise", collect_schedules, judge_promise},
                   {"steps", collect_schedules, judge_steps},
                   {"payload", collect_schedules, judge_payload}},
                  by_program);

}  // namespace
}  // namespace ringside::exercises
