// `ringside status`: where each rank of a job that runs is, and who waits for whom.

#include <csignal>
#include <filesystem>
#include <optional>

#include <unistd.h>

#include "base/clock.hpp"
#include "cli/launcher/processes/running_ranks.hpp"
#include "cli/options/command.hpp"
#include "cli/options/options.hpp"
#include "cli/pictures/json_file.hpp"
#include "collectives/diagnostics/live_view.hpp"

namespace ringside::cli {
namespace {

using collectives::Flight;
using collectives::RankNames;
using collectives::RankStatus;
using collectives::WaitGraph;

constexpr Seconds longest_answer{2};
constexpr double long_wait = 1;  // seconds

struct StatusArguments {
  int pid = 0;  // of the launcher, or of any rank of the job; 0: the only job
  std::string json;
};

std::vector<RunningRank> ranks_of_job(int pid) {
  std::vector<RunningRank> ranks = running_ranks(), first_of_jobs;
  require(!ranks.empty(),
          "no job of yours runs on this machine: its ranks are started by ringside, or by another "
          "launcher with RINGSIDE_FLIGHT_DIR set");
  for (const RunningRank& rank : ranks)
    if ((pid == 0 || descends_from(rank.pid, pid)) &&
        (first_of_jobs.empty() || first_of_jobs.back().job != rank.job))
      first_of_jobs.push_back(rank);
  require(!first_of_jobs.empty(),
          "process {} is neither a rank nor the launcher of a job that runs on this machine", pid);
  if (first_of_jobs.size() > 1) {
    std::string sentence = fmt::format(
        "{} jobs run on this machine: name one by the process of its launcher or of a rank",
        first_of_jobs.size());
    for (const RunningRank& rank : first_of_jobs)
      sentence += fmt::format("\n  ringside status {}    {} ranks: {}", rank.pid, rank.size,
                              rank.command.substr(0, 40));
    fail("{}", sentence);
  }
  const std::string job = first_of_jobs.front().job;
  std::erase_if(ranks, [&](const RunningRank& rank) { return rank.job != job; });
  return ranks;
}

std::int64_t now_ns() {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

// The records that were written since then; none while a rank is in the middle of writing.
std::vector<Flight> flights_since(std::int64_t began_ns, const std::string& folder) {
  if (!std::filesystem::exists(folder)) return {};
  try {
    std::vector<Flight> flights = collectives::read_flights(folder);
    std::erase_if(flights,
                  [&](const Flight& flight) { return flight.header.written_ns < began_ns; });
    return flights;
  } catch (const Error&) {
    return {};
  }
}

// Asks all ranks that can answer for their records, and waits until each has written those of all
// its groups: until nothing more has come for 50 ms.
std::vector<Flight> ask(const std::vector<RunningRank>& ranks) {
  const std::int64_t began_ns = now_ns();
  std::size_t answering = 0;
  for (const RunningRank& rank : ranks)
    if (rank.can_write && !rank.stopped && ::kill(rank.pid, SIGUSR1) == 0) ++answering;
  const Deadline deadline = Deadline::after(longest_answer);
  std::vector<Flight> flights;
  for (std::size_t before = 0; answering > 0 && !deadline.expired(); before = flights.size()) {
    ::usleep(50'000);
    flights = flights_since(began_ns, ranks.front().flight_folder);
    const bool all = collectives::status_of_ranks(flights).size() >= answering;
    if (all && flights.size() == before) break;
  }
  return flights;
}

// A record that was only asked for is of no use later, and would stay after the job.
void remove_records(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    try {
      const Flight flight = collectives::read_flight(entry.path());
      if (std::string_view(flight.header.cause).starts_with("asked for"))
        std::filesystem::remove(entry.path(), ignored);
    } catch (const Error&) {
      continue;  // a rank is writing it
    }
  }
  std::filesystem::remove(folder, ignored);  // unless it holds anything
}

// What is known of one rank.
struct View {
  const RunningRank& process;
  std::optional<RankStatus> answer;
};

std::string line_of(const View& rank, const RankNames& names) {
  if (!rank.answer) {
    if (rank.process.stopped)
      return fmt::format("stopped: kill -CONT {} lets it go on", rank.process.pid);
    if (!rank.process.can_write) return "has not met the other ranks yet";
    return fmt::format("does not answer: process {}", rank.process.pid);
  }
  const RankStatus& is = *rank.answer;
  if (is.call.empty()) return "has made no call";
  if (!is.in_call) return fmt::format("in no call; {:.1f} s ago it began {}", is.seconds, is.call);
  return fmt::format(
      "{:.1f} s in call {}, {}{}", is.seconds, is.call,
      collectives::step_in_words(is.step, is.steps),
      is.waits_for < 0 ? "" : fmt::format("; waits for rank {}", names(is.waits_for)));
}

Json json_of(const View& rank, const RankNames& names) {
  Json json{{"rank", rank.process.rank},
            {"name", names(rank.process.rank)},
            {"process", rank.process.pid}};
  if (!rank.answer) {
    json["state"] = rank.process.stopped     ? "stopped"
                    : rank.process.can_write ? "does not answer"
                                             : "has not met the others";
    return json;
  }
  const RankStatus& is = *rank.answer;
  json["state"] = is.call.empty() ? "has made no call" : is.in_call ? "in a call" : "in no call";
  if (is.call.empty()) return json;
  json["call"] = is.call;  // in no call: the last one
  json["call_seconds"] = is.seconds;
  if (is.in_call) json["step"] = is.step, json["steps"] = is.steps;
  if (is.waits_for >= 0) json["waits_for"] = is.waits_for;
  return json;
}

std::string advice(const WaitGraph& waits, const RankNames& names) {
  if (!waits.ends().empty())
    return fmt::format("Look at {}: others wait for it, and it waits for nobody.",
                       names.enumerate(waits.ends()));
  return waits.waits().empty() ? "No rank has waited for longer than a second."
                               : circle_in_words(waits.circle(), names) + ".";
}

void show_status(const StatusArguments& args) {
  const std::vector<RunningRank> ranks = ranks_of_job(args.pid);
  const std::vector<Flight> flights = ask(ranks);
  const RankNames names = collectives::names_of_job(flights);
  const std::vector<RankStatus> answers = collectives::status_of_ranks(flights);
  const WaitGraph waits = collectives::waits_in(flights, long_wait);
  std::FILE* const out = file_beside(args.json);
  Json of_ranks = Json::array();
  for (const RunningRank& process : ranks) {
    View rank{process, {}};
    for (const RankStatus& answer : answers)
      if (answer.rank == process.rank) rank.answer = answer;
    fmt::print(out, "rank {:<3} {}\n", names(process.rank), line_of(rank, names));
    of_ranks.push_back(json_of(rank, names));
  }
  const int size = ranks.front().size;
  if (static_cast<int>(ranks.size()) < size)
    fmt::print(out, "{} of {} ranks run on this machine\n", ranks.size(), size);
  const std::string finding = advice(waits, names);
  fmt::print(out, "\n{}\n", finding);
  remove_records(ranks.front().flight_folder);
  if (!args.json.empty())
    write_json_file(args.json, {{"ranks", size},
                                {"ranks_here", of_ranks},
                                {"look_at", waits.ends()},
                                {"finding", finding}});
}

}  // namespace

void add_status_command(CLI::App& app) {
  const auto [option, args] = add_command(
      app, "status", "Where each rank of a running job is, and who waits for whom", show_status);
  option("PID", args.pid, "The process of the launcher, or of any rank [the only job]",
         at_least_one("process"));
  add_json_option(option, args.json);
}

}  // namespace ringside::cli
