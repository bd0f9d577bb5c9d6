#include "exercises/judge/planning/formulas.hpp"

#include <cmath>

namespace ringside::exercises {
namespace {

bool equal(double a, double b) {
  return a == b || (std::isfinite(b) && std::abs(a - b) <= 1e-9 * std::abs(b));
}

}  // namespace

Json answers_to(const std::vector<Question>& questions) {
  Json answers = Json::array();
  for (const Question& question : questions) {
    const planning::Term answer = question.student();
    // As text, because JSON has no infinite numbers.
    answers.push_back({{"value", fmt::format("{:.17g}", answer.value())},
                       {"symbols", answer.quantity.symbols()},
                       {"numbers", answer.quantity.numbers()}});
  }
  return answers;
}

Verdict judge_answers(const Json& answers, const std::vector<Question>& questions) {
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const planning::Term expected = questions[i].reference();
    const Json& answer = answers.at(i);
    const double seen = std::stod(answer.at("value").get<std::string>());
    if (equal(seen, expected.value())) continue;
    std::string cause;
    for (const auto& [value, why] : questions[i].known)
      if (equal(seen, value)) cause = ": that is " + why;
    std::string is = planning::text_with_unit(seen, expected.unit);
    const std::string should_be = planning::text_with_unit(expected.value(), expected.unit);
    if (is == should_be) is = fmt::format("{:.9g}", seen);  // the text has only some digits
    return {{fmt::format("{} is {}, expected {}{}", questions[i].call, is, should_be, cause),
             fmt::format("you computed {} = {}", answer.at("symbols").get<std::string>(),
                         answer.at("numbers").get<std::string>())}};
  }
  return {};
}

}  // namespace ringside::exercises
