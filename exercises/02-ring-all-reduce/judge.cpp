// Judges a ring all-gather and a ring all-reduce by their schedules for 1 to 16 ranks.
#include "collectives/algorithms/ring/ring.hpp"
#include "collectives/proof/verify.hpp"
#include "exercises/02-ring-all-reduce/given.hpp"
#include "exercises/02-ring-all-reduce/interface.hpp"
#include "exercises/judge/collectives/schedules.hpp"
#include "exercises/judge/program.hpp"

ringside::collectives::Schedule student::collectives::ring_reduce_scatter(int size, int rank) {
  return ringside::collectives::ring_reduce_scatter(size, rank);
}

namespace ringside::exercises {
namespace {

using namespace collectives;

constexpr int largest = 16;

Json collect_schedules(World&) {
  const auto gather = [](int size, int rank) { return student_all_gather(size, rank); };
  const auto reduce = [](int size, int rank) { return student_all_reduce(size, rank); };
  return {{"all_gather", schedules_up_to(largest, gather)},
          {"all_reduce", schedules_up_to(largest, reduce)}};
}

Schedules seen(const Run& run, Collective collective, int size) {
  return schedules_of(run.ranks[0].at(std::string(name_of(collective))), size);
}

Schedules expected_of(Collective collective, int size) {
  Schedules schedules;
  for (int rank = 0; rank < size; ++rank)
    schedules.push_back(collective == Collective::all_gather ? ring_all_gather(size, rank)
                                                             : ring_all_reduce(size, rank));
  return schedules;
}

// The first promise of `collective` that is broken. Whether all ranks add in one order is a case of
// its own.
Verdict fault_of_promise(const Run& run, Collective collective, bool order) {
  for (int size = 1; size <= largest; ++size) {
    const Schedules schedules = seen(run, collective, size);
    for (const std::string& fault : verify(collective, schedules)) {
      if ((fault.find("in another order") != std::string::npos) != order) continue;
      const std::string difference = first_difference(schedules, expected_of(collective, size));
      std::vector<std::string> says;
      if (!difference.empty())
        says.push_back(fmt::format("{}, world {}, {}", name_of(collective), size, difference));
      says.push_back(fmt::format("{}, world {}: {}", name_of(collective), size, fault));
      return {says, drawing_of(collective, schedules)};
    }
  }
  return {};
}

Verdict judge_promise(const Run& run) {
  const Verdict gather = fault_of_promise(run, Collective::all_gather, false);
  return gather.says.empty() ? fault_of_promise(run, Collective::all_reduce, false) : gather;
}

// Each rank sends 2 (p-1)/p of the buffer to its right neighbour. The star sends as much in all.
Verdict judge_budget(const Run& run) {
  for (int size = 3; size <= largest; ++size) {
    const auto right = [size](int rank) { return wrap(rank + 1, size); };
    const double part = (size - 1.0) / size;
    for (const auto collective : {Collective::all_gather, Collective::all_reduce}) {
      const int times = collective == Collective::all_reduce ? 2 : 1;
      const std::string fault =
          fault_of_budget(seen(run, collective, size), times * part, times * (size - 1), right);
      if (!fault.empty())
        return {{fmt::format("{}, world {}, {}", name_of(collective), size, fault)}};
    }
  }
  return {};
}

Verdict judge_bits(const Run& run) {
  return fault_of_promise(run, Collective::all_reduce, true);
}

void by_program() {
  answer_by_program(student_all_gather, "ring_all_gather");
  answer_by_program(student_all_reduce, "ring_all_reduce");
}

const Judge judge("02-ring-all-reduce",
                  {{"promise", collect_schedules, judge_promise},
                   {"budget", collect_schedules, judge_budget},
                   {"bits", collect_schedules, judge_bits}},
                  by_program);

}  // namespace
}  // namespace ringside::exercises
