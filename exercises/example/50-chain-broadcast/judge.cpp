// Judges a broadcast along a chain by its schedules. Which neighbour comes next is free.
#include "exercises/judge/collectives/schedule_faults.hpp"
#include "interface.hpp"

namespace ringside::exercises {
namespace {

using namespace collectives;

constexpr int largest = 8;
constexpr int pieces_of[] = {1, 2, 5};

// [pieces][root][size - 1][rank]. Where a world has no rank `root`, its root is rank 0.
Json collect(World&) {
  Json all = Json::array();
  for (const int pieces : pieces_of)
    for (int root = 0; root < largest; ++root)
      all.push_back(schedules_up_to(largest, [=](int size, int rank) {
        return student_chain_broadcast(size, rank, root < size ? root : 0, pieces);
      }));
  return all;
}

Schedules seen(const Run& run, int which, int root, int size) {
  return schedules_of(run.ranks[0].at(static_cast<std::size_t>(which * largest + root)), size);
}

Verdict judge_promise(const Run& run) {
  for (int which = 0; which < 3; ++which) {
    Verdict verdict = fault_of_promise(Collective::broadcast, largest, [&](int size, int root) {
      return seen(run, which, root, size);
    });
    if (verdict.says.empty()) continue;
    verdict.says[0] += fmt::format(" (k = {})", pieces_of[which]);
    return verdict;
  }
  return {};
}

// The first fault of the schedules of all worlds: `fault` returns "" where there is none.
Verdict first_of(const Run& run,
                 const std::function<std::string(const Schedules& schedules, int pieces)>& fault) {
  for (int which = 0; which < 3; ++which)
    for (int size = 1; size <= largest; ++size)
      for (int root = 0; root < size; ++root) {
        const Schedules schedules = seen(run, which, root, size);
        const std::string says = fault(schedules, pieces_of[which]);
        if (!says.empty())
          return {
              {fmt::format("world {}, root {}, k = {}: {}", size, root, pieces_of[which], says)},
              drawing_of(Collective::broadcast, schedules)};
      }
  return {};
}

Verdict judge_chain(const Run& run) {
  return first_of(run, [](const Schedules& schedules, int) -> std::string {
    const int size = static_cast<int>(schedules.size());
    for (int rank = 0; rank < size; ++rank) {
      int peers = 0;
      double buffers = 0;
      for (const SentTo& sent : sent_by(schedules[static_cast<std::size_t>(rank)], size)) {
        peers += sent.messages > 0;
        buffers += sent.buffers;
      }
      if (peers > 1 || buffers > 1 + 1e-9)
        return fmt::format("rank {} sends {:.2f} n to {} ranks, expected at most 1.00 n to 1", rank,
                           buffers, peers);
    }
    return "";
  });
}

Verdict judge_steps(const Run& run) {
  return first_of(run, [](const Schedules& schedules, int pieces) -> std::string {
    const std::size_t size = schedules.size(), steps = schedules[0].steps.size();
    const std::size_t expected = size == 1 ? 0 : size - 2 + static_cast<std::size_t>(pieces);
    return steps <= expected ? "" : fmt::format("{} steps, expected {}", steps, expected);
  });
}

const Judge judge("50-chain-broadcast", {{"promise", collect, judge_promise},
                                         {"chain", collect, judge_chain},
                                         {"steps", collect, judge_steps}});

}  // namespace
}  // namespace ringside::exercises
