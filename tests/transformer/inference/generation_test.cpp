#include "transformer/inference/generation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "tests/transformer/small_model.hpp"

using namespace ringside;
using namespace ringside::transformer;
using tests::tiny_config;

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

}  // namespace

TEST_CASE("tokens are drawn as often as the softmax of their logits says") {
  const std::vector<double> logits = {std::log(1.0), std::log(5.0), std::log(4.0)};
  const auto seen = shares(logits, {.temperature = 1});
  CHECK(seen.at(0) == doctest::Approx(0.1).epsilon(0.1));
  CHECK(seen.at(1) == doctest::Approx(0.5).epsilon(0.03));
  CHECK(seen.at(2) == doctest::Approx(0.4).epsilon(0.03));
}

TEST_CASE("a low temperature favours likely tokens and a high one evens them out") {
  const std::vector<double> logits = {0, std::log(3.0)};
  CHECK(shares(logits, {.temperature = 0.5}).at(1) ==
        doctest::Approx(0.9).epsilon(0.02));  // 3^2 to 1
  CHECK(shares(logits, {.temperature = 100}).at(1) == doctest::Approx(0.5).epsilon(0.03));
  CHECK(shares(logits, {.temperature = 0}).size() == 1);
  CHECK(pick_token(logits, {.temperature = 0}, 0) == 1);
}

TEST_CASE("top k draws only from the likeliest tokens") {
  const std::vector<double> logits = {1, 5, 2, 5, 0};
  CHECK(shares(logits, {.temperature = 10, .top_k = 3}).size() == 3);
  CHECK(shares(logits, {.temperature = 10, .top_k = 3}).count(2) == 1);
  CHECK(shares(logits, {.temperature = 10, .top_k = 1}).count(1) == 1);  // of equal ones, the first
  CHECK(shares(logits, {.temperature = 10, .top_k = 99}).size() == 5);
  CHECK(shares(logits, {.temperature = 10, .top_k = 0}).size() == 5);
}

TEST_CASE("the smallest number picks the likeliest token and the largest the least likely") {
  const std::vector<double> logits = {0, 2, 1};
  CHECK(pick_token(logits, {.temperature = 1}, 0) == 1);
  CHECK(pick_token(logits, {.temperature = 1}, std::nextafter(1.0, 0.0)) == 0);
  CHECK(pick_token(std::vector<double>{1e300, -1e300}, {.temperature = 1e-3}, 0.999) == 0);
}

TEST_CASE("invalid logits and options are refused") {
  const std::vector<double> one = {0}, broken = {0, std::numeric_limits<double>::quiet_NaN()};
  CHECK_THROWS_WITH_AS(pick_token({}, {}, 0), "there are no logits to draw a token from", Error);
  CHECK_THROWS_WITH_AS(pick_token(broken, {}, 0),
                       "the model's logits are not numbers: its training has diverged", Error);
  CHECK_THROWS_WITH_AS(pick_token(one, {.temperature = -1}, 0),
                       "the temperature is -1, but it must be 0 or more", Error);
  CHECK_THROWS_WITH_AS(pick_token(one, {.top_k = -1}, 0),
                       "top_k is -1, but it must be 0 (all tokens) or more", Error);
}

TEST_CASE("a text depends on the seed and may be longer than the model's window") {
  const Model model(tiny_config());
  const SampleOptions options{.temperature = 1, .seed = 4};
  const auto text = generate(model, {1, 2, 3}, 20, options);
  CHECK(text.size() == 20);
  for (const std::int32_t token : text) CHECK((token >= 0 && token < 17));
  CHECK(text == generate(model, {1, 2, 3}, 20, options));
  CHECK(text != generate(model, {1, 2, 3}, 20, {.temperature = 1, .seed = 5}));
  CHECK_THROWS_WITH_AS(generate(model, {}, 1), "a prompt needs at least one token", Error);
}

TEST_CASE("every token of a text is drawn with its own random number") {
  const Model model(tiny_config(), autograd::DType::fp64);
  std::vector<std::int32_t> seen = {5};
  const auto text = generate(model, seen, 5, {.temperature = 1000});
  // The rank of each token by probability. At this temperature all tokens are equally likely, so
  // the rank shows the random number.
  std::set<std::int64_t> ranks;
  for (const std::int32_t token : text) {
    const autograd::NoGrad no_grad;
    const auto logits =
        model.forward(autograd::Tensor::from(seen, {1, static_cast<std::int64_t>(seen.size())}));
    const auto row = logits.values<double>().last(17);
    ranks.insert(
        std::count_if(row.begin(), row.end(), [&](double logit) { return logit > row[token]; }));
    seen.push_back(token);
  }
  CHECK(ranks.size() > 1);
}

TEST_CASE("at temperature 0 each token is the argmax of the logits") {
  const Model model(tiny_config(), autograd::DType::fp64);
  const auto text = generate(model, {5}, 4, {.temperature = 0});
  std::vector<std::int32_t> seen = {5};
  for (const std::int32_t token : text) {
    const autograd::NoGrad no_grad;
    const auto logits =
        model.forward(autograd::Tensor::from(seen, {1, static_cast<std::int64_t>(seen.size())}));
    const auto row = logits.values<double>().last(17);
    CHECK(token == std::max_element(row.begin(), row.end()) - row.begin());
    seen.push_back(token);
  }
}

TEST_CASE("logits with a KV cache equal those without") {
  for (const auto dtype : {autograd::DType::fp64, autograd::DType::fp32}) {
    Config config = tiny_config();
    config.sequence = 24;
    config.layers = 3;
    const Model model(config, dtype);
    const autograd::NoGrad no_grad;
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 24; ++i) tokens.push_back(i * i % 17);
    const auto whole = model.forward(autograd::Tensor::from(tokens, {1, 24}));
    for (const std::vector<std::int64_t>& pieces :
         {std::vector<std::int64_t>{24}, {23, 1}, {1, 1, 1, 21}, {5, 7, 1, 11}}) {
      auto caches = model.empty_kv_cache();
      std::int64_t seen = 0;
      for (const std::int64_t piece : pieces) {
        const std::vector<std::int32_t> part(tokens.begin() + seen, tokens.begin() + seen + piece);
        const auto logits =
            model.head(model.hidden(autograd::Tensor::from(part, {1, piece}), &caches));
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
      CHECK(caches[2].length == 24);
      CHECK_THROWS_WITH_AS(model.hidden(autograd::Tensor::from<std::int32_t>({1}, {1, 1}), &caches),
                           "the model reads tokens of shape [sequences, 1 to 0], but got [1, 1]",
                           Error);
    }
  }
}

TEST_CASE("a KV cache is refused while gradients are recorded") {
  const Model model(tiny_config());
  auto caches = model.empty_kv_cache();
  CHECK_THROWS_WITH_AS(model.hidden(autograd::Tensor::from<std::int32_t>({1}, {1, 1}), &caches),
                       "a KV cache records no gradients: run the forward pass under NoGrad", Error);
}

TEST_CASE("when the window is full, generation continues with its last half") {
  const Model model(tiny_config(), autograd::DType::fp64);
  const auto window = static_cast<std::size_t>(model.config().sequence);
  // The prompt is longer than the window, so only its last tokens are seen.
  std::vector<std::int32_t> tokens(window + 3, 2);
  tokens[4] = 7;
  const auto text =
      generate(model, tokens, 3 * static_cast<std::int64_t>(window), {.temperature = 0});
  std::size_t begin = tokens.size() - window;
  for (const std::int32_t token : text) {
    if (tokens.size() - begin > window) begin = tokens.size() - window / 2;
    const std::vector<std::int32_t> seen(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                         tokens.end());
    const autograd::NoGrad no_grad;
    const auto logits =
        model.forward(autograd::Tensor::from(seen, {1, static_cast<std::int64_t>(seen.size())}));
    const auto row = logits.values<double>().last(17);
    CHECK(token == std::max_element(row.begin(), row.end()) - row.begin());
    tokens.push_back(token);
  }
}
