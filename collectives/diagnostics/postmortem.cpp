// Works out what happened, by the flight records of all ranks.
#include <algorithm>
#include <ranges>
#include <set>

#include <fmt/format.h>

#include "base/text/words.hpp"
#include "collectives/diagnostics/diagnosis.hpp"
#include "collectives/diagnostics/live_view.hpp"
#include "collectives/rank_names.hpp"

namespace ringside::collectives {

bool knows_ranks_of_job(const FlightHeader& header) {
  return header.group[0] == '\0' ||
         ranks_of_sub_group(header.group).size() == static_cast<std::size_t>(header.size);
}

RankNames names_in(const FlightHeader& header) {
  return knows_ranks_of_job(header) ? RankNames(ranks_of_sub_group(header.group), header.mesh)
                                    : RankNames();
}

namespace {

// Such a record does not say when and why it was written, nor the progress of a call.
bool is_of_torch(const FlightHeader& header) {
  return header.written_ns == 0;
}

// The records of one group, in the order of ranks, and its ranks' names.
struct Group {
  std::vector<Flight> flights;
  RankNames names;

  const FlightHeader& first_to_write() const {
    return std::min_element(flights.begin(), flights.end(),
                            [](const Flight& a, const Flight& b) {
                              return a.header.written_ns < b.header.written_ns;
                            })
        ->header;
  }

  std::string_view name() const { return flights.front().header.group; }

  // If not, it counts its ranks in its own way.
  bool knows_ranks_of_job() const {
    return collectives::knows_ranks_of_job(flights.front().header);
  }

  bool holds(const std::set<int>& ranks_of_job, int r) const {
    return knows_ranks_of_job() && ranks_of_job.contains(names.in_job(r));
  }
};

bool in_a_call(const Flight& flight) {
  return !flight.entries.empty() && flight.entries.back().state != FlightEntry::done;
}

std::vector<Group> groups_of(const std::vector<Flight>& flights) {
  std::vector<Group> groups;
  for (const Flight& flight : flights) {
    const FlightHeader& header = flight.header;
    if (groups.empty() || groups.back().name() != header.group) {
      groups.push_back({{}, names_in(header)});
    }
    groups.back().flights.push_back(flight);
  }
  return groups;
}

std::string line_of(const Flight& flight, const RankNames& names) {
  const std::string who = fmt::format("rank {:<3} ", names(flight.header.rank));
  if (flight.entries.empty()) return who + "had made no call";
  const FlightEntry& last = flight.entries.back();
  const auto what = fmt::format("call #{}, {}", last.sequence, describe(last.call, names));
  if (last.state == FlightEntry::done)
    return fmt::format("{}had ended {}, and was in no call", who, what);
  const auto until =
      static_cast<double>(last.failed_ns ? last.failed_ns : flight.header.written_ns);
  const double seconds = (until - static_cast<double>(last.began_ns)) * 1e-9;
  return fmt::format(
      "{}{} {}{}{}", who, last.state == FlightEntry::failed ? "failed in" : "was in", what,
      is_of_torch(flight.header)
          ? ""
          : fmt::format(" for {:.1f} s: {}, {} bytes received", seconds,
                        step_in_words(last.step, last.steps), last.bytes_received),
      last.waiting_for >= 0 ? fmt::format(", waiting for rank {}", names(last.waiting_for)) : "");
}

std::string in_words(const Divergence& found, const RankNames& names) {
  std::string text = fmt::format("The ranks diverged at call #{}:", found.sequence);
  for (const auto& [call, ranks] : found.made)
    text += fmt::format("\n  {} made {}", names.enumerate(ranks), call);
  return text + "\nEvery rank must make the same calls in the same order.";
}

std::string in_words(const Laggards& found, const RankNames& names) {
  return fmt::format(
      "All made the same calls, but {} had not come to call #{}, in which the others wait: look at "
      "what {} did after the call before it.",
      names.enumerate(found.ranks), found.sequence, found.ranks.size() == 1 ? "it" : "they");
}

// What is certain: ranks that made different calls, or wait in a circle.
std::string mistake_in(const Group& group) {
  if (const auto found = divergence(group.flights)) return in_words(*found, group.names);
  const auto ranks = circle(group.flights);
  return ranks.empty()
             ? ""
             : circle_in_words(ranks, group.names) + ". One of them must send before it receives.";
}

// Ranks for which the others wait, late ones and those without a record, but for those that are
// themselves in a call of another group (`waiting`, by their numbers in the job).
std::string lack_in(const Group& group, const std::set<int>& waiting) {
  const auto waits = [&](int r) { return group.holds(waiting, r); };
  auto late = laggards(group.flights);
  if (late) std::erase_if(late->ranks, waits);
  if (late && late->ranks.empty()) late.reset();
  std::vector<int> absent = without_record(group.flights);
  std::erase_if(absent, waits);
  if (absent.empty()) return late ? in_words(*late, group.names) : "";
  // The cause may be a rank that died while the late ones were on their way to the call.
  return fmt::format(
      "{} look at {}.",
      late ? in_words(*late, group.names) + " Or the cause is a rank that left no record:"
           : "All that left a record made the same calls:",
      group.names.enumerate(absent));
}

// Whether all these ranks of the job are in a call of the group. A collective in which a message
// was lost waits in a circle, too: there the waits do not tell what is wrong.
bool all_in_a_call(const Group& group, const std::vector<int>& ranks) {
  const auto in = std::ranges::count_if(group.flights, [&](const Flight& flight) {
    const int rank = group.names.in_job(flight.header.rank);
    return in_a_call(flight) && std::ranges::find(ranks, rank) != ranks.end();
  });
  return group.knows_ranks_of_job() && in == std::ssize(ranks);
}

std::string verdict_of(const std::vector<const Group*>& in_order_of_failure,
                       const std::vector<Flight>& flights) {
  const WaitGraph waits = waits_in(flights);
  const std::vector<int> found = waits.ends();
  const std::set<int> ends(found.begin(), found.end());
  std::set<int> waiting;
  for (const Group* group : in_order_of_failure)
    for (const Flight& flight : group->flights)
      if (group->knows_ranks_of_job() && in_a_call(flight))
        waiting.insert(group->names.in_job(flight.header.rank));
  const auto of_group = [](const Group& group, const std::string& sentence) {
    const std::string_view name = group.name();
    return name.empty() ? sentence
                        : fmt::format("In sub-group {}: {}", sub_group_in_words(name), sentence);
  };
  for (const Group* group : in_order_of_failure)
    if (const auto mistake = mistake_in(*group); !mistake.empty()) return of_group(*group, mistake);
  // Of several groups in which ranks are missing, one with a rank at the end of all waits.
  for (const bool with_end : {true, false})
    for (const Group* group : in_order_of_failure) {
      const bool has_end =
          std::ranges::any_of(std::views::iota(0, group->flights.front().header.size),
                              [&](int r) { return group->holds(ends, r); });
      if (const auto lack = lack_in(*group, waiting); !lack.empty() && (has_end || !with_end))
        return of_group(*group, lack);
    }
  const std::vector<int> circle = waits.circle();
  const bool in_one_group = std::ranges::any_of(
      in_order_of_failure, [&](const Group* group) { return all_in_a_call(*group, circle); });
  if (!circle.empty() && !in_one_group) return circle_in_words(circle, names_of_job(flights)) + ".";
  return "All ranks made the same calls and had come equally far.";
}

// `recorded` are the ranks, by their numbers in the job, that left a record of any group.
std::string lines_of(const Group& group, const std::set<int>& recorded) {
  std::string text;
  for (const Flight& flight : group.flights) text += line_of(flight, group.names) + "\n";
  std::vector<int> elsewhere, nowhere;
  for (const int r : without_record(group.flights))
    (group.holds(recorded, r) ? elsewhere : nowhere).push_back(r);
  if (!elsewhere.empty())
    text += fmt::format("{} left no record here, only of other groups\n",
                        group.names.enumerate(elsewhere));
  if (!nowhere.empty())
    text += fmt::format("{} left no record: killed, or stuck, or on another host\n",
                        group.names.enumerate(nowhere));
  return text;
}

}  // namespace

std::string postmortem(const std::vector<Flight>& flights) {
  const std::vector<Group> groups = groups_of(flights);
  std::vector<const Group*> in_order;
  for (const Group& group : groups) in_order.push_back(&group);
  std::stable_sort(in_order.begin(), in_order.end(), [](const Group* a, const Group* b) {
    return a->first_to_write().written_ns < b->first_to_write().written_ns;
  });
  const Group& first = *in_order.front();
  const FlightHeader& header = first.first_to_write();
  std::string text = verdict_of(in_order, flights) + "\n";
  if (!is_of_torch(header))
    text += fmt::format("\nFirst to write, rank {}: {}\n", first.names(header.rank), header.cause);
  std::set<int> recorded;
  for (const Group& group : groups)
    for (const Flight& flight : group.flights)
      if (group.knows_ranks_of_job()) recorded.insert(group.names.in_job(flight.header.rank));
  int quiet = 0;  // sub-groups
  for (const Group& group : groups) {
    const std::string_view name = group.name();
    const auto& of_group = group.flights;
    if (!name.empty() && std::none_of(of_group.begin(), of_group.end(), in_a_call) &&
        mistake_in(group).empty()) {
      ++quiet;
      continue;
    }
    text += "\n";
    if (!name.empty())
      text += fmt::format("Sub-group {}{}:\n", sub_group_in_words(name),
                          group.knows_ranks_of_job() ? "" : ", by its own numbers of ranks");
    text += lines_of(group, recorded);
  }
  if (quiet > 0)
    text +=
        fmt::format("\nIn {} sub-group{} no call was under way.\n", quiet, quiet > 1 ? "s" : "");
  return text;
}

}  // namespace ringside::collectives
