#include "transformer/inference/evaluation.hpp"

#include <cmath>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside;
using namespace ringside::transformer;
using autograd::DType;

namespace {

Config minute() {
  Config config;
  config.vocabulary = 13;
  config.d_model = 8;
  config.layers = 1;
  config.heads = 2;
  config.kv_heads = 1;
  config.d_ff = 6;
  config.sequence = 6;
  return config;
}

std::string refusal_of(const std::string& name, const std::string& content) {
  TemporaryDirectory directory;
  const auto path = directory.write(name, content);
  try {
    read_tokens(path, 4);
  } catch (const Error& error) {
    const std::string message = error.what(),
                      start = "cannot read tokens from " + path.string() + ": ";
    REQUIRE(message.starts_with(start));
    return message.substr(start.size());
  }
  return "accepted";
}

std::string refusal_of(const std::vector<Tokens>& sequences) {
  try {
    check_sequences(sequences, minute());
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

TEST_CASE("tokens are read as JSON and as streams that are cut") {
  TemporaryDirectory directory;
  CHECK(read_tokens(directory.write("a.json", "[[1, 2, 3], [4, 5]]"), 4) ==
        std::vector<Tokens>{{1, 2, 3}, {4, 5}});
  CHECK(read_tokens(directory.write("b.json", " [7, 8]\n"), 4) == std::vector<Tokens>{{7, 8}});
  const std::string stream("\1\0\2\0\3\0\4\0\5\1\6\0", 12);
  CHECK(read_tokens(directory.write("c.u16", stream), 4) ==
        std::vector<Tokens>{{1, 2, 3, 4}, {261, 6}});
  CHECK(read_tokens(directory.write("d.u16", stream), 5) ==
        std::vector<Tokens>{{1, 2, 3, 4, 261}});  // a single token foretells nothing
  CHECK(read_tokens(directory.write("e.u32", stream), 4) ==
        std::vector<Tokens>{{0x20001, 0x40003, 0x60105}});
}

TEST_CASE("a file that holds no tokens is refused") {
  CHECK(refusal_of("a.txt", "1 2 3") ==
        "its name must end in .json, .u16 or .u32 to say what is in it");
  CHECK(refusal_of("a.json", "") == "it is empty");
  CHECK(refusal_of("a.json", "[[1, 2") == "it is not JSON");
  CHECK(refusal_of("a.json", "{}") ==
        "a list of sequences is expected, such as [[5, 17, 2], [8, 1]]");
  CHECK(refusal_of("a.json", "[]") ==
        "a list of sequences is expected, such as [[5, 17, 2], [8, 1]]");
  CHECK(refusal_of("a.json", "[[1], []]") == "sequence 1 is empty");
  CHECK(refusal_of("a.json", "[[1], 2]") == "sequence 1 is not a list of token ids");
  CHECK(refusal_of("a.json", "[[1, -2]]") == "sequence 0 has -2 at place 1, which is no token id");
  CHECK(refusal_of("a.json", "[1, 2.5]") == "sequence 0 has 2.5 at place 1, which is no token id");
  CHECK(refusal_of("a.json", "[[1, 2147483648]]") ==
        "sequence 0 has 2147483648 at place 1, which is no token id");
  CHECK(refusal_of("a.u16", "abc") == "its 3 bytes are not whole tokens of 2 bytes");
  CHECK(refusal_of("a.u32", "\xff\xff\xff\xff") ==
        "it has 4294967295 at place 0, which is no token id");
  CHECK_THROWS_WITH_AS(read_tokens("/nowhere/a.json", 4),
                       "cannot read tokens from /nowhere/a.json: No such file or directory", Error);
}

TEST_CASE("sequences that the model cannot read are refused") {
  CHECK(refusal_of(std::vector<Tokens>{}) == "there are no sequences");
  CHECK(refusal_of(std::vector<Tokens>{{1, 2}, {3}}) ==
        "sequence 1 has 1 token: it takes two, for the first to foretell the second");
  CHECK(refusal_of(std::vector<Tokens>{{1, 2, 3, 4, 5, 6}}) == "accepted");
  CHECK(refusal_of(std::vector<Tokens>{{1, 2, 3, 4, 5, 6, 7}}) ==
        "sequence 0 has 7 tokens, but the model sees at most 6: cut it");
  CHECK(refusal_of(std::vector<Tokens>{{1, 13}}) ==
        "sequence 0 has the token 13 at place 1, but the model's vocabulary is 0 to 12");
}

TEST_CASE("the loss is the mean over all tokens and does not depend on what goes together") {
  const Model model(minute(), DType::fp64);
  const std::vector<Tokens> sequences = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10}, {11, 12, 0}};
  const Evaluation whole = evaluate(model, sequences);
  CHECK(whole.foretold == 9);
  REQUIRE(whole.log_probabilities.size() == 4);
  CHECK(whole.log_probabilities[2].size() == 1);
  double sum = 0;
  for (const auto& of_sequence : whole.log_probabilities)
    for (const double log_probability : of_sequence) sum -= log_probability;
  CHECK(whole.loss == doctest::Approx(sum / 9).epsilon(1e-14));
  CHECK(whole.loss ==
        doctest::Approx(std::log(13.0)).epsilon(0.05));  // an untrained model knows nothing
  CHECK(evaluate(model, sequences, {.at_once = 1}).loss ==
        doctest::Approx(whole.loss).epsilon(1e-14));
  CHECK(model.parameters()[0].grad().defined() == false);

  const auto together = gradients_of(model, sequences, 8),
             apart = gradients_of(model, sequences, 1);
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < together.size(); ++i) {
    worst = std::max(worst, std::abs(together[i] - apart[i]));
    largest = std::max(largest, std::abs(together[i]));
  }
  CHECK(worst < 1e-15);
  CHECK(largest > 1e-3);
}
