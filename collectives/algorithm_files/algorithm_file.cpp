#include "collectives/algorithm_files/algorithm_file.hpp"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/read_file.hpp"
#include "collectives/algorithm_files/schedule_json.hpp"
#include "collectives/proof/verify_algorithm.hpp"

namespace ringside::collectives {
namespace {

// The proof keeps ranks * ranks * chunks numbers: a file must not exhaust the memory.
constexpr int most_ranks = 1024, most_chunks = 16384;

CaseOfFile case_of(const Json& object) {
  require(object.is_object() && object.contains("collective") && object["collective"].is_string() &&
              object.contains("schedules") && object["schedules"].is_array(),
          "expected {{\"collective\": \"all_reduce\", \"schedules\": [one for each rank]}}");
  CaseOfFile found{.collective = collective_named(object["collective"].get<std::string>()),
                   .schedules = {}};
  if (const Json root = object.value("root", Json()); !root.is_null()) {
    require(root.is_number_integer(), "the root must be the number of a rank, not {}", root.dump());
    found.root = root.get<int>();
  }
  for (const Json& schedule : object["schedules"]) {
    try {
      found.schedules.push_back(schedule.get<Schedule>());
    } catch (const Error& error) {
      fail("rank {}, {}", found.schedules.size(), error.what());
    }
  }
  return found;
}

// XML begins with '<', and JSON never does.
bool is_xml(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  return begin != std::string::npos && text[begin] == '<';
}

std::vector<CaseOfFile> cases_of_text(const std::string& file, const std::string& text) {
  require(!is_xml(text),
          "it is XML: `ringside msccl {} --json {}` makes JSON of an algorithm of MSCCL", file,
          std::filesystem::path(file).replace_extension(".json").string());
  std::vector<CaseOfFile> cases;
  const Json parsed = Json::parse(text);
  for (const Json& object : parsed.is_array() ? parsed : Json::array({parsed}))
    cases.push_back(case_of(object));
  return cases;
}

std::vector<CaseOfFile> cases_of(const std::string& file, const std::string& text) {
  std::vector<CaseOfFile> cases;
  try {
    cases = cases_of_text(file, text);
    require(!cases.empty(), "there is no schedule in it");
    for (const CaseOfFile& each : cases) {
      const int size = static_cast<int>(each.schedules.size());
      require(each.collective == cases[0].collective, "one file is for one collective");
      require(size >= 1 && size <= most_ranks, "it has schedules for {} ranks: expected 1 to {}",
              size, most_ranks);
      require(each.root >= 0 && each.root < size, "the root must be one of 0 to {}, not {}",
              size - 1, each.root);
      for (const Schedule& schedule : each.schedules)
        require(schedule.chunks >= 1 && schedule.chunks <= most_chunks,
                "a buffer has 1 to {} chunks, not {}", most_chunks, schedule.chunks);
    }
  } catch (const std::exception& error) {
    fail("the algorithm {} cannot be used: {}", file, error.what());
  }
  return cases;
}

}  // namespace

const Algorithm& load_algorithm(const std::string& file) {
  const std::string text = read_file(file, "the algorithm"),
                    name = std::filesystem::path(file).filename();
  const auto cases = cases_of(file, text);
  Algorithm algorithm{.collective = cases[0].collective, .name = name, .make = {}};
  for (const CaseOfFile& each : cases)
    algorithm.only.push_back({static_cast<int>(each.schedules.size()), each.root});
  // make_schedules() has checked that there is such a case.
  algorithm.make = [cases](int size, int rank, int root) -> Schedule {
    Schedule found;  // a rank alone has nothing to do
    for (const CaseOfFile& each : cases)
      if (static_cast<int>(each.schedules.size()) == size) {
        found = each.schedules[static_cast<std::size_t>(rank)];
        if (each.root == root) break;
      }
    return found;
  };
  return add_algorithm(algorithm, std::hash<std::string>()(text));
}

const Algorithm& load_proved_algorithm(const std::string& file) {
  const Algorithm& algorithm = load_algorithm(file);
  for (const Case& only : algorithm.only) {
    const auto faults = verify(algorithm, only.size, only.root);
    require(faults.empty(), "{}\n`ringside prove --algorithm {}` shows all that is wrong with it",
            faults.empty() ? "" : faults[0], file);
  }
  set_algorithm_of_file(file, algorithm);
  return algorithm;
}

void load_algorithms(const std::string& list) {
  std::istringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const std::string name = entry.substr(entry.find('=') + 1);
    if (is_algorithm_file(name)) load_proved_algorithm(name);
  }
}

const Algorithm& algorithm_named(Collective collective, const std::string& name) {
  if (is_algorithm_file(name)) load_proved_algorithm(name);
  return find_algorithm(collective, name);
}

}  // namespace ringside::collectives
