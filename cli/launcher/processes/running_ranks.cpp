#include "cli/launcher/processes/running_ranks.hpp"

#include "base/read_file.hpp"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <tuple>

#include <fmt/format.h>

namespace ringside::cli {
namespace {

// Empty once the process has gone.
std::string text_of(const std::filesystem::path& file) {
  return read_if_possible(file).value_or("");
}

std::map<std::string, std::string> environment_of(const std::filesystem::path& process) {
  std::map<std::string, std::string> environment;
  std::istringstream entries(text_of(process / "environ"));
  for (std::string entry; std::getline(entries, entry, '\0');)
    if (const std::size_t equals = entry.find('='); equals != std::string::npos)
      environment[entry.substr(0, equals)] = entry.substr(equals + 1);
  return environment;
}

std::optional<RunningRank> rank_in(const std::filesystem::path& process) {
  const auto variables = environment_of(process);
  const auto value = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
  const auto number = [&](const char* name) {
    int n = -1;
    const std::string text = value(name);
    std::from_chars(text.data(), text.data() + text.size(), n);
    return n;
  };
  if (value("RINGSIDE_FLIGHT_DIR").empty() || number("RANK") < 0) return std::nullopt;
  RunningRank rank{.rank = number("RANK"),
                   .size = number("WORLD_SIZE"),
                   .pid = std::stoi(process.filename()),
                   .job = value("RINGSIDE_JOB_KEY") + value("MASTER_ADDR") + value("MASTER_PORT"),
                   .flight_folder = value("RINGSIDE_FLIGHT_DIR")};
  rank.command = text_of(process / "cmdline");
  std::ranges::replace(rank.command, '\0', ' ');
  std::istringstream status(text_of(process / "status"));
  for (std::string name, word; status >> word; name = word) {
    if (name == "State:") rank.stopped = word == "T" || word == "t";
    if (name == "SigCgt:")
      rank.can_write = (std::stoull(word, nullptr, 16) >> (SIGUSR1 - 1) & 1) != 0;
  }
  return rank;
}

}  // namespace

std::vector<RunningRank> running_ranks() {
  std::vector<RunningRank> ranks;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (auto rank = rank_in(entry.path())) ranks.push_back(std::move(*rank));
  }
  std::ranges::sort(ranks, {}, [](const RunningRank& each) {
    return std::tuple(each.job, each.rank, !each.can_write, each.pid);
  });
  const auto same = std::ranges::unique(
      ranks, {}, [](const RunningRank& each) { return std::pair(each.job, each.rank); });
  ranks.erase(same.begin(), same.end());
  return ranks;
}

bool descends_from(pid_t process, pid_t ancestor) {
  while (process > 1 && process != ancestor) {
    std::istringstream status(text_of(fmt::format("/proc/{}/status", process)));
    process = 0;
    for (std::string name, word; status >> word; name = word)
      if (name == "PPid:") process = std::stoi(word);
  }
  return process > 1;
}

}  // namespace ringside::cli
