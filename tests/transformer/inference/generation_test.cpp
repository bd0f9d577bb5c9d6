#include "transformer/inference/generation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "base/random.hpp"

using namespace ringside;
using namespace ringside::transformer;

namespace {

// How often each token is picked in many draws.
std::map<std::int32_t, double> shares(const std::vector<double>& logits,
                                      const SampleOptions& options) {
  constexpr int draws = 20000;
  std::map<std::int32_t, double> counts;
  for (int i = 0; i < draws; ++i)
    counts[pick_token(logits, options, random_uniform(3, 0, i))] += 1.0 / draws;
  return counts;
}

Config minute() {
  Config config;
  config.vocabulary = 13;
  config.d_model = 8;
  config.layers = 1;
  config.heads = config.kv_heads = 2;
  config.d_ff = 8;
  config.sequence = 6;
  return config;
}

}  // namespace

TEST_CASE("tokens are drawn as often as the softmax of their logits says") {
  const std::vector<double> logits = {std::log(1.0), std::log(5.0), std::log(4.0)};
  const auto seen = shares(logits, {.temperature = 1});
  CHECK(seen.at(0) == doctest::Approx(0.1).epsilon(0.1));
  CHECK(seen.at(1) == doctest::Approx(0.5).epsilon(0.03));
  CHECK(seen.at(2) == doctest::Approx(0.4).epsilon(0.03));
}

TEST_CASE("a low temperature sharpens the odds and a high one levels them") {
  const std::vector<double> logits = {0, std::log(3.0)};
  CHECK(shares(logits, {.temperature = 0.5}).at(1) ==
        doctest::Approx(0.9).epsilon(0.02));  // 3^2 to 1
  CHECK(shares(logits, {.temperature = 100}).at(1) == doctest::Approx(0.5).epsilon(0.03));
  CHECK(shares(logits, {.temperature = 0}).size() == 1);
  CHECK(pick_token(logits, {.temperature = 0}, 0) == 1);
}

TEST_CASE("top k leaves only the likeliest to be drawn") {
  const std::vector<double> logits = {1, 5, 2, 5, 0};
  CHECK(shares(logits, {.temperature = 10, .top_k = 3}).size() == 3);
  CHECK(shares(logits, {.temperature = 10, .top_k = 3}).count(2) == 1);
  CHECK(shares(logits, {.temperature = 10, .top_k = 1}).count(1) == 1);  // of equals the first
  CHECK(shares(logits, {.temperature = 10, .top_k = 99}).size() == 5);
  CHECK(shares(logits, {.temperature = 10, .top_k = 0}).size() == 5);
}

TEST_CASE("the ends of the range pick the likeliest and the least likely") {
  const std::vector<double> logits = {0, 2, 1};
  CHECK(pick_token(logits, {.temperature = 1}, 0) == 1);
  CHECK(pick_token(logits, {.temperature = 1}, std::nextafter(1.0, 0.0)) == 0);
  CHECK(pick_token(std::vector<double>{1e300, -1e300}, {.temperature = 1e-3}, 0.999) == 0);
}

TEST_CASE("what cannot be drawn from is refused") {
  const std::vector<double> one = {0}, broken = {0, std::numeric_limits<double>::quiet_NaN()};
  CHECK_THROWS_WITH_AS(pick_token({}, {}, 0), "there are no logits to draw a token from", Error);
  CHECK_THROWS_WITH_AS(pick_token(broken, {}, 0),
                       "the model's logits are not numbers: its training has diverged", Error);
  CHECK_THROWS_WITH_AS(pick_token(one, {.temperature = -1}, 0),
                       "the temperature is -1, but it must be 0 or more", Error);
  CHECK_THROWS_WITH_AS(pick_token(one, {.top_k = -1}, 0),
                       "top_k is -1, but it must be 0 (all tokens) or more", Error);
}

TEST_CASE("a text depends on the seed and goes on beyond the model's window") {
  const Model model(minute());
  const SampleOptions options{.temperature = 1, .seed = 4};
  const auto text = generate(model, {1, 2, 3}, 20, options);
  CHECK(text.size() == 20);
  for (const std::int32_t token : text) CHECK((token >= 0 && token < 13));
  CHECK(text == generate(model, {1, 2, 3}, 20, options));
  CHECK(text != generate(model, {1, 2, 3}, 20, {.temperature = 1, .seed = 5}));
  CHECK_THROWS_WITH_AS(generate(model, {}, 1), "a text needs a beginning of at least one token",
                       Error);
}

TEST_CASE("every token of a text is drawn with a number of its own") {
  const Model model(minute(), autograd::DType::fp64);
  std::vector<std::int32_t> seen = {5};
  const auto text = generate(model, seen, 5, {.temperature = 1000});
  std::set<std::int64_t>
      places;  // of each token among all, likeliest first: with equal odds, the number drawn
  for (const std::int32_t token : text) {
    const autograd::NoGrad no_history;
    const auto logits =
        model.forward(autograd::Tensor::from(seen, {1, static_cast<std::int64_t>(seen.size())}));
    const auto row = logits.values<double>().last(13);
    places.insert(
        std::count_if(row.begin(), row.end(), [&](double logit) { return logit > row[token]; }));
    seen.push_back(token);
  }
  CHECK(places.size() > 1);
}

TEST_CASE("the likeliest text is the argmax of the model's own logits") {
  const Model model(minute(), autograd::DType::fp64);
  const auto text = generate(model, {5}, 4, {.temperature = 0});
  std::vector<std::int32_t> seen = {5};
  for (const std::int32_t token : text) {
    const autograd::NoGrad no_history;
    const auto logits =
        model.forward(autograd::Tensor::from(seen, {1, static_cast<std::int64_t>(seen.size())}));
    const auto row = logits.values<double>().last(13);
    CHECK(token == std::max_element(row.begin(), row.end()) - row.begin());
    seen.push_back(token);
  }
}

TEST_CASE("logits with a past are those without") {
  for (const auto dtype : {autograd::DType::fp64, autograd::DType::fp32}) {
    Config config = minute();
    config.sequence = 24;
    config.heads = 4;
    config.d_model = 16;
    config.kv_heads = 2;
    config.layers = 3;
    const Model model(config, dtype);
    const autograd::NoGrad no_history;
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 24; ++i) tokens.push_back(i * i % 13);
    const auto whole = model.forward(autograd::Tensor::from(tokens, {1, 24}));
    for (const std::vector<std::int64_t>& pieces :
         {std::vector<std::int64_t>{24}, {23, 1}, {1, 1, 1, 21}, {5, 7, 1, 11}}) {
      auto past = model.empty_past();
      std::int64_t seen = 0;
      for (const std::int64_t piece : pieces) {
        const std::vector<std::int32_t> part(tokens.begin() + seen, tokens.begin() + seen + piece);
        const auto logits =
            model.head(model.hidden(autograd::Tensor::from(part, {1, piece}), &past));
        const auto expected = whole.narrow(1, seen, piece).contiguous();
        autograd::dispatch(dtype, "test", [&](auto zero) {
          using T = decltype(zero);
          const double tolerance = sizeof(T) == 8 ? 1e-14 : 1e-6;
          for (std::int64_t i = 0; i < expected.elements(); ++i)
            CHECK(std::abs(logits.template data<T>()[i] - expected.template data<T>()[i]) <
                  tolerance);
        });
        seen += piece;
      }
      CHECK(past[2].seen == 24);
      CHECK_THROWS_WITH_AS(model.hidden(autograd::Tensor::from<std::int32_t>({1}, {1, 1}), &past),
                           "the model reads tokens of shape [sequences, 1 to 0], but got [1, 1]",
                           Error);
    }
  }
}

TEST_CASE("a past keeps no history") {
  const Model model(minute());
  auto past = model.empty_past();
  CHECK_THROWS_WITH_AS(model.hidden(autograd::Tensor::from<std::int32_t>({1}, {1, 1}), &past),
                       "a past keeps no history: generate under NoGrad", Error);
}

TEST_CASE("when no more fits a text goes on from the last half of what was seen") {
  const Model model(minute(), autograd::DType::fp64);
  const auto window = static_cast<std::size_t>(model.config().sequence);
  std::vector<std::int32_t> tokens(window + 3,
                                   2);  // a beginning that is too long: its last tokens are seen
  tokens[4] = 7;
  const auto text =
      generate(model, tokens, 3 * static_cast<std::int64_t>(window), {.temperature = 0});
  std::size_t begin = tokens.size() - window;
  for (const std::int32_t token : text) {
    if (tokens.size() - begin > window) begin = tokens.size() - window / 2;
    const std::vector<std::int32_t> seen(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                         tokens.end());
    const autograd::NoGrad no_history;
    const auto logits =
        model.forward(autograd::Tensor::from(seen, {1, static_cast<std::int64_t>(seen.size())}));
    const auto row = logits.values<double>().last(13);
    CHECK(token == std::max_element(row.begin(), row.end()) - row.begin());
    tokens.push_back(token);
  }
}
