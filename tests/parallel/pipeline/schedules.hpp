// Helpers of the tests of pipeline schedules.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "parallel/pipeline/csv.hpp"
#include "parallel/pipeline/generators/catalogue.hpp"
#include "parallel/pipeline/lower.hpp"
#include "parallel/pipeline/schedule.hpp"

// Prints findings in a failed CHECK.
template <>
struct doctest::StringMaker<std::vector<std::string>> {
  static String convert(const std::vector<std::string>& sentences) {
    return fmt::format("\n  {}\n", fmt::join(sentences, "\n  ")).c_str();
  }
};

namespace ringside::pipeline_parallel {

// A schedule as its rows of CSV, without placement: {"0F0,0B0", "1F0,1B0"}.
inline Schedule schedule_of_rows(const std::vector<std::string>& rows) {
  std::string text;
  for (const std::string& row : rows) text += row + "\n";
  return parse_csv(text, "test");
}

// One row of csv_of().
inline std::string row_of(const Schedule& schedule, int rank) {
  std::string text = csv_of(schedule);
  for (int i = 0; i < rank; ++i) text = text.substr(text.find('\n') + 1);
  return text.substr(0, text.find('\n'));
}

// The index of an action that must exist.
inline std::size_t index_of(const Schedule& schedule, int rank, const std::string& action) {
  const std::vector<Action>& actions = schedule.actions[rank];
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (text_of(actions[i]) == action) return i;
  }
  fail("{} is not in the schedule of the test", action);
}

// Mutations: each changes a correct schedule into a wrong one.
inline void swap_actions(Schedule& schedule, int rank, const std::string& a, const std::string& b) {
  std::swap(schedule.actions[rank][index_of(schedule, rank, a)],
            schedule.actions[rank][index_of(schedule, rank, b)]);
}
inline void erase_action(Schedule& schedule, int rank, const std::string& action) {
  auto& actions = schedule.actions[rank];
  actions.erase(actions.begin() + index_of(schedule, rank, action));
}
inline void repeat_action(Schedule& schedule, int rank, const std::string& action) {
  auto& actions = schedule.actions[rank];
  actions.push_back(actions[index_of(schedule, rank, action)]);
}

}  // namespace ringside::pipeline_parallel
