#include "collectives/proof/verify.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text/words.hpp"
#include "collectives/algorithms/catalogue.hpp"
#include "collectives/proof/disagreements.hpp"
#include "collectives/proof/lockstep.hpp"

namespace ringside::collectives {

namespace {

using Findings = std::vector<std::string>;

Findings faults_of_shape(Collective collective, const std::vector<Schedule>& schedules) {
  Findings found;
  const Schedule& first = schedules[0];
  const int size = static_cast<int>(schedules.size());
  for (int rank = 1; rank < size; ++rank) {
    const Schedule& other = schedules[rank];
    if (other.steps.size() != first.steps.size()) {
      found.push_back(
          fmt::format("rank {} takes {} steps, but rank 0 takes {} (a rank with nothing to do "
                      "takes an empty step)",
                      rank, other.steps.size(), first.steps.size()));
    }
    if (other.chunks != first.chunks) {
      found.push_back(fmt::format("rank {} cuts the buffer into {} chunks, but rank 0 into {}",
                                  rank, other.chunks, first.chunks));
    }
  }
  if (first.chunks < 1)
    found.push_back(
        fmt::format("the buffer must be cut into at least 1 chunk, not into {}", first.chunks));
  // A rank's block may have several chunks.
  if (has_blocks(collective) && first.chunks % size != 0) {
    found.push_back(
        fmt::format("{} on {} ranks needs {} chunks, one for each rank, but Schedule::chunks is {}",
                    name_of(collective), size, size, first.chunks));
  }
  return found;
}

// Only in an all_to_all may a chunk end as another chunk: elsewhere contributions carry no chunk
// number, so this mistake would go unseen.
std::string fault_of_landing(Collective collective, const std::vector<Schedule>& schedules,
                             int step, int rank) {
  const std::optional<Send>& send = schedules[rank].steps[step].send;
  if (names_chunks(collective) || !send || send->taken() == send->chunks) return "";
  return fmt::format("step {}: rank {} sends {}, and only an all_to_all may do so", step, rank,
                     in_words(*send));
}

Findings faults_of_messages(Collective collective, const std::vector<Schedule>& schedules) {
  Findings found;
  for (int step = 0; step < static_cast<int>(schedules[0].steps.size()); ++step) {
    for (const std::string& fault : disagreements(schedules, step)) found.push_back(fault);
    for (int rank = 0; rank < static_cast<int>(schedules.size()); ++rank) {
      const std::string fault = fault_of_landing(collective, schedules, step, rank);
      if (!fault.empty()) found.push_back(fault);
    }
  }
  return found;
}

// What a chunk must hold at the end.
struct Wanted {
  enum { anything, all, one } what;
  int whose = 0;   // `one`: the rank that contributed it
  int chunk = -1;  // `one`: which chunk of that rank; -1: the same chunk
};

// `parts`: the chunks of each rank's block.
Wanted wanted(Collective collective, int root, int rank, int chunk, int parts) {
  const int owner = chunk / parts;
  switch (collective) {
    case Collective::all_reduce:
      return {Wanted::all};
    case Collective::reduce_scatter:
      return {owner == rank ? Wanted::all : Wanted::anything};
    case Collective::all_gather:
      return {Wanted::one, owner};
    case Collective::broadcast:
      return {Wanted::one, root};
    case Collective::reduce:
      return {rank == root ? Wanted::all : Wanted::anything};
    case Collective::gather:
      return rank == root ? Wanted{Wanted::one, owner} : Wanted{Wanted::anything};
    case Collective::scatter:
      return owner == rank ? Wanted{Wanted::one, root} : Wanted{Wanted::anything};
    case Collective::all_to_all:
      return {Wanted::one, owner, rank * parts + chunk % parts};
    case Collective::barrier:
    case Collective::point_to_point:
      return {Wanted::anything};
  }
  fail("verify does not know what collective number {} promises", static_cast<int>(collective));
}

// "holds rank 3 twice, should not hold rank 1 and lacks ranks 0 and 2"; empty if the chunk is
// right.
std::string fault_of_chunk(const std::vector<double>& held, int size, Wanted want) {
  if (want.what == Wanted::anything) return "";
  std::vector<std::string> repeated;
  std::vector<int> foreign, missing;
  for (int rank = 0; rank < size; ++rank) {
    const bool belongs = want.what == Wanted::all || want.whose == rank;
    if (belongs && held[rank] == 0) missing.push_back(rank);
    if (!belongs && held[rank] > 0) foreign.push_back(rank);
    if (belongs && held[rank] == 2) repeated.push_back(fmt::format("rank {} twice", rank));
    if (belongs && held[rank] > 2)
      repeated.push_back(fmt::format("rank {} ({} times)", rank, held[rank]));
  }
  std::vector<std::string> clauses;
  if (!repeated.empty()) clauses.push_back("holds " + enumerate(repeated));
  if (!foreign.empty()) clauses.push_back("should not hold " + ranks_in_words(foreign));
  if (!missing.empty()) clauses.push_back("lacks " + ranks_in_words(missing));
  if (want.chunk >= 0 && missing.empty() && held[size + want.chunk] == 0) {
    const auto other =
        std::find_if(held.begin() + size, held.end(), [](double times) { return times > 0; }) -
        held.begin() - size;
    clauses.push_back(fmt::format("should hold chunk {} of rank {}, not chunk {}", want.chunk,
                                  want.whose, other));
  }
  return enumerate(clauses);
}

Findings faults_at_the_end(Collective collective, const std::vector<RankState>& states, int root) {
  Findings found;
  const int size = static_cast<int>(states.size());
  const int chunks = static_cast<int>(states[0].chunks.size()),
            parts = has_blocks(collective) ? chunks / size : 1;
  for (int rank = 0; rank < size; ++rank) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const std::string fault = fault_of_chunk(states[rank].chunks[chunk], size,
                                               wanted(collective, root, rank, chunk, parts));
      if (!fault.empty())
        found.push_back(fmt::format("at the end chunk {} on rank {} {}", chunk, rank, fault));
    }
  }
  return found;
}

// In an all_reduce every rank must have added in the same order.
Findings faults_of_order(const std::vector<RankState>& states) {
  Findings found;
  for (int rank = 1; rank < static_cast<int>(states.size()); ++rank) {
    for (int chunk = 0; chunk < static_cast<int>(states[rank].sums.size()); ++chunk) {
      if (states[rank].sums[chunk] == states[0].sums[chunk]) continue;
      found.push_back(
          fmt::format("at the end chunk {} on rank {} was added up in another order than on rank "
                      "0: the last bits may differ",
                      chunk, rank));
    }
  }
  return found;
}

Findings faults_of_barrier(const std::vector<RankState>& states) {
  Findings found;
  const int size = static_cast<int>(states.size());
  for (int rank = 0; rank < size; ++rank) {
    std::vector<int> unheard;
    for (int other = 0; other < size; ++other) {
      if (!states[rank].heard_from[other]) unheard.push_back(other);
    }
    if (!unheard.empty())
      found.push_back(
          fmt::format("at the end rank {} has not heard from {}", rank, ranks_in_words(unheard)));
  }
  return found;
}

}  // namespace

std::vector<std::string> verify(Collective collective, const std::vector<Schedule>& schedules,
                                int root) {
  const int size = static_cast<int>(schedules.size());
  require(size >= 1, "verify needs the schedule of at least 1 rank");
  require(root >= 0 && root < size, "the root must be one of the ranks 0 to {}, not {}", size - 1,
          root);

  Findings found = faults_of_shape(collective, schedules);
  if (found.empty()) found = faults_of_messages(collective, schedules);
  if (!found.empty()) return found;

  std::vector<RankState> states =
      start_with_contributions(size, schedules[0].chunks, names_chunks(collective));
  run_all_steps(schedules, states);
  if (collective == Collective::barrier) return faults_of_barrier(states);
  found = faults_at_the_end(collective, states, root);
  if (found.empty() && collective == Collective::all_reduce) found = faults_of_order(states);
  return found;
}

}  // namespace ringside::collectives
