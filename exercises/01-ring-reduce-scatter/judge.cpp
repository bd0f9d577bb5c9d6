// Judges a ring reduce-scatter: by its schedules for 1 to 16 ranks, and by its run.
#include "base/random.hpp"
#include "collectives/algorithms/chunks.hpp"
#include "collectives/algorithms/ring/ring.hpp"
#include "collectives/proof/lockstep.hpp"
#include "collectives/proof/verify.hpp"
#include "exercises/01-ring-reduce-scatter/interface.hpp"
#include "exercises/judge/collectives/schedules.hpp"
#include "exercises/judge/program.hpp"

namespace ringside::exercises {
namespace {

using namespace collectives;

constexpr int largest = 16;

Schedules expected_of(int size) {
  Schedules schedules;
  for (int rank = 0; rank < size; ++rank) schedules.push_back(ring_reduce_scatter(size, rank));
  return schedules;
}

Json collect_schedules(World&) {
  return schedules_up_to(largest,
                         [](int size, int rank) { return student_reduce_scatter(size, rank); });
}

// At the end chunk r on rank r holds every rank's contribution once.
Verdict judge_promise(const Run& run) {
  for (int size = 1; size <= largest; ++size) {
    const Schedules schedules = schedules_of(run.ranks[0], size);
    const std::vector<std::string> faults = verify(Collective::reduce_scatter, schedules);
    if (faults.empty()) continue;
    std::vector<std::string> says;
    const std::string difference = first_difference(schedules, expected_of(size));
    if (!difference.empty()) says.push_back(fmt::format("world {}, {}", size, difference));
    says.push_back(fmt::format("world {}: {}", size, faults[0]));
    return {says, drawing_of(Collective::reduce_scatter, schedules)};
  }
  return {};
}

// Every rank sends (p-1)/p of the buffer to its right neighbour, in p-1 messages. Bytes are counted
// rank by rank, and from 3 ranks on: a star through rank 0 sends as many bytes in all, and with 2
// ranks as many from each.
Verdict judge_budget(const Run& run) {
  for (int size = 3; size <= largest; ++size) {
    const std::string fault =
        fault_of_budget(schedules_of(run.ranks[0], size), (size - 1.0) / size, size - 1,
                        [size](int rank) { return wrap(rank + 1, size); });
    if (!fault.empty()) return {{fmt::format("world {}, {}", size, fault)}};
  }
  return {};
}

// Each chunk is added up in the order of the ring: equal fingerprints mean equal bits.
Verdict judge_bits(const Run& run) {
  for (int size = 1; size <= largest; ++size) {
    const auto sums_of = [size](const Schedules& schedules) {
      std::vector<RankState> states = start_with_contributions(size, schedules[0].chunks);
      run_all_steps(schedules, states);
      return states;
    };
    const auto seen = sums_of(schedules_of(run.ranks[0], size)),
               wanted = sums_of(expected_of(size));
    for (int rank = 0; rank < size; ++rank)
      if (seen[rank].sums.at(rank) != wanted[rank].sums[rank])
        return {
            {fmt::format("world {}, rank {}: chunk {} is added up in another order than along "
                         "the ring, which begins at rank {}",
                         size, rank, rank, wrap(rank + 1, size))}};
  }
  return {};
}

std::vector<float> input_of(int rank, std::size_t count, std::uint64_t seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(random_normal(seed, static_cast<std::uint64_t>(rank), i));
  return values;
}

std::size_t count_for(std::uint64_t seed) {
  return 50 + random_below(50, seed, 1, 0);
}

// The chunk of this rank, out of place and in place.
Json collect_runs(World& world) {
  const std::size_t count = count_for(world.seed());
  const Schedule schedule = student_reduce_scatter(world.size(), world.rank());
  const Call call{
      .collective = Collective::reduce_scatter, .count = count, .label = Label("exercise 01")};
  const Chunks chunks = Chunks::even(count, world.size());
  const ChunkRange all{0, world.size()}, mine{world.rank(), 1};
  std::vector<float> input = input_of(world.rank(), count, world.seed());
  std::vector<float> output(chunks.size(world.rank()));
  world.doing("a reduce_scatter by your schedule");
  ScheduleRunner runner(world, schedule);
  runner.run(call, input, all, output, mine);
  const Json apart = output;
  const std::span<float> in_place =
      std::span(input).subspan(chunks.begin(world.rank()), output.size());
  runner.run(call, input, all, in_place, mine);
  return {{"out of place", apart},
          {"in place", std::vector<float>(in_place.begin(), in_place.end())}};
}

Verdict judge_runs(const Run& run) {
  const Chunks chunks = Chunks::even(count_for(run.seed), run.world);
  for (int rank = 0; rank < run.world; ++rank)
    for (const char* where : {"out of place", "in place"}) {
      const std::vector<float> seen = run.ranks[rank].at(where);
      for (std::size_t i = 0; i < chunks.size(rank); ++i) {
        float sum = 0;  // in the order of the ring: from the right neighbour on
        for (int k = 1; k <= run.world; ++k)
          sum +=
              input_of(wrap(rank + k, run.world), chunks.count(), run.seed)[chunks.begin(rank) + i];
        if (seen.size() != chunks.size(rank) || seen[i] != sum)
          return {{fmt::format("rank {}, {}: element {} of its chunk is {}, expected {}", rank,
                               where, i, i < seen.size() ? seen[i] : 0, sum)}};
      }
    }
  return {};
}

void by_program() {
  answer_by_program(student_reduce_scatter, "ring_reduce_scatter");
}

const Judge judge("01-ring-reduce-scatter",
                  {{"promise", collect_schedules, judge_promise},
                   {"budget", collect_schedules, judge_budget},
                   {"bits", collect_schedules, judge_bits},
                   {"runs", collect_runs, judge_runs}},
                  by_program);

}  // namespace
}  // namespace ringside::exercises
