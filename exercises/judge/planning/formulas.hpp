// What the judges of formulas share: questions with a number for an answer.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "exercises/judge/judge.hpp"
#include "exercises/judge/planning/quantity.hpp"

// A number; in an answer also "inf".
template <>
struct ringside::JsonForm<ringside::planning::Quantity> {
  static Json to_json(const planning::Quantity& quantity) { return quantity.value(); }
};
template <>
struct ringside::JsonForm<ringside::planning::Term> {
  static planning::Term from_json(const Json& json) {
    const double value = json.is_string() ? std::stod(json.get<std::string>()) : json.get<double>();
    return {"", "", {"your program's answer", value}, planning::Unit::number, ""};
  }
};

namespace ringside::exercises {

struct Question {
  std::string call;  // "devices_for_state(3,518 GB, 80 GB)"
  std::function<planning::Term()> student, reference;
  // Wrong answers, each with its cause: {41, "GiB taken for GB"}.
  std::vector<std::pair<double, std::string>> known = {};
};

// The question student(args...), which reference(args...) answers.
template <class... Args>
Question ask(std::string call, const Student<planning::Term(const Args&...)>& student,
             planning::Term (*reference)(const Args&...),
             const std::type_identity_t<Args>&... args) {
  return {std::move(call), [=, &student] { return student(args...); },
          [=] { return reference(args...); }};
}

// The student's answer to each question: {"value", "symbols", "numbers"}, all as text.
Json answers_to(const std::vector<Question>& questions);

// The first answer that differs from the reference's by more than 1e-9 of it:
//
//     devices_for_state(3,518 GB, 80 GB) is 41, expected 44: that is GiB taken for GB
//     you computed M_state / 80 = ...
Verdict judge_answers(const Json& answers, const std::vector<Question>& questions);

}  // namespace ringside::exercises
