// Judges a tree that broadcasts and one that reduces by their schedules for 1 to 16 ranks and every
// root. Any shape of tree will do, if it needs no more steps than a binomial one.
#include "exercises/03-broadcast-tree/interface.hpp"
#include "exercises/judge/collectives/schedule_faults.hpp"
#include "exercises/judge/program.hpp"

namespace ringside::exercises {
namespace {

using namespace collectives;

constexpr int largest = 16;

// [root][size - 1][rank]. Where a world has no rank `root`, its root is rank 0, and nobody looks.
template <const auto& student>
Json collect_schedules(World&) {
  Json roots = Json::array();
  for (int root = 0; root < largest; ++root)
    roots.push_back(schedules_up_to(largest, [root](int size, int rank) {
      return student(size, rank, root < size ? root : 0);
    }));
  return roots;
}

Schedules seen(const Run& run, int size, int root) {
  return schedules_of(run.ranks[0].at(static_cast<std::size_t>(root)), size);
}

template <Collective collective>
Verdict judge_promise(const Run& run) {
  return fault_of_promise(collective, largest,
                          [&run](int size, int root) { return seen(run, size, root); });
}

Verdict judge_steps(const Run& run) {
  for (int size = 1; size <= largest; ++size)
    for (int root = 0; root < size; ++root) {
      const Schedules schedules = seen(run, size, root);
      const std::string fault = fault_of_logarithm(schedules);
      if (!fault.empty())
        return {{fmt::format("world {}, root {}: {}", size, root, fault)},
                drawing_of(Collective::broadcast, schedules)};
    }
  return {};
}

Verdict judge_reduce(const Run& run) {
  const Verdict verdict = judge_promise<Collective::reduce>(run);
  return verdict.says.empty() ? judge_steps(run) : verdict;
}

void by_program() {
  answer_by_program(student_broadcast, "binomial_broadcast");
  answer_by_program(student_reduce, "binomial_reduce");
}

const Judge judge("03-broadcast-tree",
                  {{"promise", collect_schedules<student_broadcast>,
                    judge_promise<Collective::broadcast>},
                   {"steps", collect_schedules<student_broadcast>, judge_steps},
                   {"reduce", collect_schedules<student_reduce>, judge_reduce}},
                  by_program);

}  // namespace
}  // namespace ringside::exercises
