#include "exercises/judge/collectives/schedule_faults.hpp"

#include <bit>

#include "cli/pictures/numbers.hpp"
#include "collectives/algorithms/collective.hpp"
#include "collectives/proof/verify.hpp"

namespace ringside::exercises {

using namespace collectives;

Verdict fault_of_promise(Collective collective, int largest,
                         const std::function<Schedules(int size, int root)>& schedules) {
  for (int size = 1; size <= largest; ++size)
    for (int root = 0; root < (has_root(collective) ? size : 1); ++root) {
      const Schedules seen = schedules(size, root);
      std::vector<std::string> faults = verify(collective, seen, root);
      if (has_blocks(collective) && seen[0].chunks != size)  // here a block is one chunk
        faults.assign(1, fmt::format("{} on {} ranks needs {} chunks, one for each rank, but "
                                     "Schedule::chunks is {}",
                                     name_of(collective), size, size, seen[0].chunks));
      if (faults.empty()) continue;
      const std::string where = has_root(collective) ? fmt::format(", root {}", root) : "";
      return {{fmt::format("{}, world {}{}: {}", name_of(collective), size, where, faults[0])},
              drawing_of(collective, seen)};
    }
  return {};
}

std::string fault_of_logarithm(const Schedules& schedules) {
  const auto size = static_cast<unsigned>(schedules.size());
  const auto expected = static_cast<std::size_t>(std::bit_width(size - 1));
  if (schedules[0].steps.size() <= expected) return "";
  return fmt::format("{}, expected {}", cli::counted(std::ssize(schedules[0].steps), "step"),
                     expected);
}

}  // namespace ringside::exercises
