// Judges all-reduces between GPUs that see each other's memory: what flags put in order, sums, whom
// each rank turns to first, and how a wait ends.
#include <algorithm>
#include <cmath>

#include "exercises/40-all-reduce/interface.hpp"
#include "exercises/judge/autograd/tensors.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {
namespace {

using gpu::PeersRun, gpu::PeersSeen;
using StudentCall = Student<PeersSeen(const PeersRun& run)>;

constexpr PeersRun two_shots[] = {
    {.ranks = 2, .calls = 3, .count = 37},
    {.ranks = 3, .blocks = 2, .threads = 2, .calls = 3, .count = 131},
    {.ranks = 4, .blocks = 2, .threads = 3, .calls = 2, .count = 400, .offset = 1},
    {.ranks = 5, .threads = 2, .calls = 3, .count = 203, .in_place = true},
    {.ranks = 8, .blocks = 2, .threads = 2, .calls = 2, .count = 515}};
constexpr PeersRun one_shots[] = {
    {.ranks = 2, .calls = 6, .count = 9},
    {.ranks = 3, .blocks = 2, .threads = 2, .calls = 6, .count = 70},
    {.ranks = 4, .threads = 3, .calls = 5, .count = 64},
    {.ranks = 5, .blocks = 2, .calls = 5, .count = 51},
    {.ranks = 8, .blocks = 2, .threads = 2, .calls = 4, .count = 100}};
// A rank is lost: the host of another one says stop, or time runs out.
constexpr PeersRun lost_ranks[] = {
    {.ranks = 3, .blocks = 2, .threads = 2, .calls = 2, .count = 70, .missing = 1, .stopped = 0},
    {.ranks = 3, .threads = 2, .calls = 2, .count = 70, .missing = 2}};

template <std::size_t runs>
Json collect(World& world, const char* name, const StudentCall& call, const PeersRun (&all)[runs]) {
  Json seen = Json::array();
  for (PeersRun run : all) {
    run.seed = world.seed();
    world.doing(fmt::format("{}: {}", name, run.text()));
    const PeersSeen each = call(run);
    Json outputs = Json::array();
    for (const std::vector<float>& output : each.outputs) {
      outputs.push_back(Json::array());
      for (const float number : output) outputs.back().push_back(json_of(number));
    }
    seen.push_back({{"fault", each.fault},
                    {"outputs", outputs},
                    {"loads", each.loads},
                    {"stores", each.stores},
                    {"returned", each.returned},
                    {"gave_up", each.gave_up},
                    {"waiting_for", each.waiting_for},
                    {"number", each.number}});
  }
  return seen;
}

Json collect_two_shots(World& world) {
  return collect(world, "two_shot_all_reduce", student_two_shot, two_shots);
}
Json collect_one_shots(World& world) {
  return collect(world, "one_shot_all_reduce", student_one_shot, one_shots);
}
Json collect_both(World& world) {
  return {collect_two_shots(world), collect_one_shots(world)};
}
Json collect_lost(World& world) {
  return {collect(world, "two_shot_all_reduce", student_two_shot, lost_ranks),
          collect(world, "one_shot_all_reduce", student_one_shot, lost_ranks)};
}

// ---- Order and sums ----

double sum_of(const PeersRun& run, int call, std::size_t i) {
  double sum = 0;
  for (int rank = 0; rank < run.ranks; ++rank) sum += double{run.input(rank, call, i)};
  return sum * double{scale_of_sums};
}

bool near(double seen, double expected) {
  return std::abs(seen - expected) <= 1e-5;
}

// Whose old numbers explain a wrong sum, if any do.
std::string why_of(const PeersRun& run, int call, std::size_t i, double seen) {
  for (int rank = 0; rank < run.ranks; ++rank)
    for (int old = 0; old < call; ++old) {
      const double more = double{run.input(rank, old, i)} - double{run.input(rank, call, i)};
      if (near(seen, sum_of(run, call, i) + double{scale_of_sums} * more))
        return fmt::format(": the sum has rank {}'s number of call {}", rank, old + 1);
    }
  return "";
}

std::string fault_of_sums(const PeersRun& run, const Json& seen) {
  if (const std::string fault = seen.at("fault"); !fault.empty()) return fault;
  const Json& outputs = seen.at("outputs");
  for (int call = 0; call < run.calls; ++call)
    for (int rank = 0; rank < run.ranks; ++rank) {
      const auto at = static_cast<std::size_t>(call * run.ranks);
      const Json &output = outputs.at(at + static_cast<std::size_t>(rank)), &first = outputs.at(at);
      for (std::size_t i = 0; i < run.count; ++i) {
        const double value = number_of(output.at(i)), expected = sum_of(run, call, i);
        if (!near(value, expected))
          return fmt::format("call {}: element {} of rank {}'s output is {:.7g}, expected {:.7g}{}",
                             call + 1, i, rank, value, expected, why_of(run, call, i, value));
        if (output.at(i) != first.at(i))
          return fmt::format(
              "call {}: element {} is {:.9g} on rank {} and {:.9g} on rank 0; all ranks need the "
              "same bits, so all add in the order of the ranks",
              call + 1, i, value, rank, number_of(first.at(i)));
      }
    }
  return "";
}

template <std::size_t runs>
Verdict judge_sums(const Run& seen, const PeersRun (&all)[runs]) {
  for (std::size_t n = 0; n < runs; ++n) {
    PeersRun run = all[n];
    run.seed = seen.seed;
    if (const std::string fault = fault_of_sums(run, seen.ranks[0].at(n)); !fault.empty())
      return {{run.text() + ": " + fault}};
  }
  return {};
}

Verdict judge_two_shots(const Run& run) {
  return judge_sums(run, two_shots);
}
Verdict judge_one_shots(const Run& run) {
  return judge_sums(run, one_shots);
}

// ---- The order of peers ----

// visits: [rank], whom it turns to, in the order of the first times.
std::string fault_of_visits(const std::string& name, const char* does,
                            const std::vector<std::vector<int>>& visits) {
  const std::size_t ranks = visits.size();
  for (std::size_t nth = 0; nth < ranks; ++nth) {
    std::vector<int> met(ranks);
    for (const std::vector<int>& of_rank : visits)
      if (nth < of_rank.size()) ++met[static_cast<std::size_t>(of_rank[nth])];
    const auto most = std::max_element(met.begin(), met.end());
    if (*most > 1)
      return fmt::format(
          "{} on {} ranks: {} of them {} rank {} as number {} of their peers, over the links of "
          "one GPU; expected: each rank turns to another one",
          name, ranks, *most, does, most - met.begin(), nth + 1);
  }
  return "";
}

Verdict judge_peers(const Run& run) {
  for (std::size_t n = 1; n < std::size(two_shots); ++n) {
    const Json &two_shot = run.ranks[0].at(0).at(n), &one_shot = run.ranks[0].at(1).at(n);
    for (const std::string& fault :
         {fault_of_visits("two-shot", "load from", two_shot.at("loads")),
          fault_of_visits("two-shot", "store to", two_shot.at("stores")),
          fault_of_visits("one-shot", "store to", one_shot.at("stores"))})
      if (!fault.empty()) return {{fault}};
  }
  return {};
}

// ---- A lost rank ----

std::string fault_of_end(const PeersRun& run, const Json& seen) {
  if (const std::string fault = seen.at("fault"); !fault.empty()) return fault;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(run.ranks); ++rank) {
    if (static_cast<int>(rank) == run.missing) continue;
    if (seen.at("returned").at(rank))
      return fmt::format("rank {} returns true, expected false: its sums are incomplete", rank);
    if (!seen.at("gave_up").at(rank))
      return fmt::format("rank {} does not tell its host that it gave up", rank);
    const std::uint32_t waiting_for = seen.at("waiting_for").at(rank);
    if (run.stopped < 0 && waiting_for != 0 && static_cast<int>(waiting_for) != run.missing + 1)
      return fmt::format("rank {} tells its host that {} is {}, expected {} or 0", rank,
                         "stall.waiting_for", waiting_for, run.missing + 1);
  }
  const std::vector<std::uint32_t> waiting = seen.at("waiting_for");
  if (run.stopped < 0 && std::all_of(waiting.begin(), waiting.end(), [](auto w) { return w == 0; }))
    return fmt::format("no rank tells its host for whom it was waiting, in stall.waiting_for");
  return "";
}

Verdict judge_lost(const Run& seen) {
  for (std::size_t kind = 0; kind < 2; ++kind)
    for (std::size_t n = 0; n < std::size(lost_ranks); ++n) {
      const PeersRun& run = lost_ranks[n];
      const std::string fault = fault_of_end(run, seen.ranks[0].at(kind).at(n));
      if (fault.empty()) continue;
      return {
          {fmt::format("{}, {} ranks, rank {} is lost, {}: {}", kind == 0 ? "two-shot" : "one-shot",
                       run.ranks, run.missing,
                       run.stopped >= 0 ? fmt::format("the host of rank {} says stop", run.stopped)
                                        : "no host says stop and time runs out",
                       fault)}};
    }
  return {};
}

const Judge judge("40-all-reduce", {{"two-shot", collect_two_shots, judge_two_shots},
                                    {"one-shot", collect_one_shots, judge_one_shots},
                                    {"peers", collect_both, judge_peers},
                                    {"stop", collect_lost, judge_lost}});

}  // namespace
}  // namespace ringside::exercises
