#include "transformer/inference/evaluation.hpp"

#include <cmath>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "tests/transformer/small_model.hpp"

using namespace ringside;
using namespace ringside::transformer;
using autograd::DType;
using tests::tiny_config;

namespace {

std::string refusal_of(const std::vector<Tokens>& sequences) {
  try {
    check_sequences(sequences, tiny_config());
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::vector<double> gradients_of(const Model& model, const std::vector<Tokens>& sequences,
                                 std::int64_t at_once) {
  evaluate(model, sequences, {.gradients = true, .at_once = at_once});
  std::vector<double> all;
  for (const auto& parameter : model.parameters()) {
    const auto values = parameter.grad().values<double>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

TEST_CASE("sequences that the model cannot read are refused with the reason") {
  CHECK(refusal_of(std::vector<Tokens>{}) == "there are no sequences");
  CHECK(refusal_of(std::vector<Tokens>{{1, 2}, {3}}) ==
        "sequence 1 has 1 token: it needs at least two, so that the first predicts the second");
  CHECK(refusal_of({Tokens(10, 1)}) == "accepted");
  CHECK(refusal_of({Tokens(11, 1)}) ==
        "sequence 0 has 11 tokens, but the model sees at most 10: cut it");
  CHECK(refusal_of(std::vector<Tokens>{{1, 17}}) ==
        "sequence 0 has the token 17 at position 1, but the model's vocabulary is 0 to 16");
}

TEST_CASE("the loss is the mean over all predicted tokens, however sequences are batched") {
  const Model model(tiny_config(), DType::fp64);
  const std::vector<Tokens> sequences = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10}, {11, 12, 0}};
  const Evaluation whole = evaluate(model, sequences);
  CHECK(whole.predicted_tokens == 9);
  REQUIRE(whole.log_probabilities.size() == 4);
  CHECK(whole.log_probabilities[2].size() == 1);
  double sum = 0;
  for (const auto& of_sequence : whole.log_probabilities)
    for (const double log_probability : of_sequence) sum -= log_probability;
  CHECK(whole.loss == doctest::Approx(sum / 9).epsilon(1e-14));
  // An untrained model finds all 17 tokens about equally likely.
  CHECK(whole.loss == doctest::Approx(std::log(17.0)).epsilon(0.05));
  CHECK(evaluate(model, sequences, {.at_once = 1}).loss ==
        doctest::Approx(whole.loss).epsilon(1e-14));
  CHECK(model.parameters()[0].grad().defined() == false);

  const auto batched = gradients_of(model, sequences, 8),
             one_by_one = gradients_of(model, sequences, 1);
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < batched.size(); ++i) {
    worst = std::max(worst, std::abs(batched[i] - one_by_one[i]));
    largest = std::max(largest, std::abs(batched[i]));
  }
  CHECK(worst < 1e-15);
  CHECK(largest > 1e-3);
}
