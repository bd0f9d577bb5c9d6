#include "transformer/model.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include <doctest/doctest.h>

#include "autograd/engine/engine.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "tests/transformer/plain_llama.hpp"

using namespace ringside;
using namespace ringside::transformer;
using autograd::DType;
using autograd::NamedTensor;
using autograd::NoGrad;
using autograd::Tensor;

namespace {

// Small enough for central differences. Sizes are odd where possible, and query heads share a key
// head.
Config tiny_config() {
  return {.vocabulary = 11,
          .d_model = 12,
          .layers = 2,
          .heads = 3,
          .kv_heads = 1,
          .d_ff = 7,
          .sequence = 9};
}

Tensor random_tokens(const Config& config, std::int64_t sequences, std::int64_t length,
                     std::uint64_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < sequences * length; ++i) {
    tokens.push_back(static_cast<std::int32_t>(
        random_below(static_cast<std::uint64_t>(config.vocabulary), seed, 0, i)));
  }
  return Tensor::from(tokens, {sequences, length});
}

double loss_without_grad(const Model& model, const Tensor& tokens, const Tensor& targets) {
  const NoGrad no_grad;
  return model.loss(tokens, targets).item();
}

std::vector<double> logits_of(const Model& model, const Tensor& tokens) {
  const NoGrad no_grad;
  const Tensor logits = model.forward(tokens);
  const auto values = logits.values<double>();
  return {values.begin(), values.end()};
}

// Initial values are small and norms are ones, which could hide an error. So this adds noise to
// every parameter.
void perturb(const Model& model) {
  for (const auto& [name, tensor] : model.named_parameters()) {
    const auto values = tensor.values<double>();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] += 0.3 * random_normal(9, autograd::stream_of(name), i);
  }
}

// Compares every gradient with the central difference of the loss.
void check_gradients(const Config& config) {
  const Model model(config, DType::fp64);
  const Tensor tokens = random_tokens(config, 2, config.sequence, 5),
               targets = random_tokens(config, 2, config.sequence, 6);
  perturb(model);
  autograd::backward(model.loss(tokens, targets));
  for (const auto& [name, tensor] : model.named_parameters()) {
    CAPTURE(name);
    REQUIRE(tensor.grad().defined());
    const auto values = tensor.values<double>();
    const auto gradient = tensor.grad().values<double>();
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      constexpr double h = 1e-6;
      const double kept = values[i];
      values[i] = kept + h;
      const double above = loss_without_grad(model, tokens, targets);
      values[i] = kept - h;
      const double below = loss_without_grad(model, tokens, targets);
      values[i] = kept;
      worst = std::max(worst, std::abs((above - below) / (2 * h) - gradient[i]));
    }
    CHECK(worst < 1e-8);
    CHECK(
        std::any_of(gradient.begin(), gradient.end(), [](double g) { return std::abs(g) > 1e-4; }));
  }
}

}  // namespace

TEST_CASE("logits equal those of the same model written in plain loops") {
  for (const bool tied : {false, true}) {
    Config config = tiny_config();
    config.d_model = 24;
    config.heads = 6;
    config.kv_heads = tied ? 6 : 2;
    config.rope_theta = 50;
    config.tied_head = tied;
    const Model model(config, DType::fp64);
    perturb(model);
    std::map<std::string, std::vector<double>> weights;
    for (const auto& [name, tensor] : model.named_parameters(true)) {
      const auto values = tensor.values<double>();
      weights[name].assign(values.begin(), values.end());
    }
    const std::vector<std::int32_t> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5};
    const std::vector<double> seen = logits_of(model, Tensor::from(tokens, {1, 9}));
    std::vector<double> expected;
    for (const auto& row : PlainLlama(config, weights).logits(tokens))
      expected.insert(expected.end(), row.begin(), row.end());
    REQUIRE(seen.size() == expected.size());
    for (std::size_t i = 0; i < seen.size(); ++i) CHECK(std::abs(seen[i] - expected[i]) < 1e-12);
  }
}

TEST_CASE("every gradient of the whole model agrees with central differences") {
  check_gradients(tiny_config());
}

TEST_CASE("gradients of q and k in fp32 are exact in a model whose weights are 8 times larger") {
  // Scores are thousands, and most attention goes to one key. The logarithm of a row's sum, which
  // forward saves, then has few bits left for its fraction.
  Config config = tiny_config();
  config.vocabulary = 29;
  config.d_model = 32;
  config.heads = 4;
  config.kv_heads = 2;
  config.d_ff = 48;
  config.sequence = 64;
  const Model single(config, DType::fp32), exact(config, DType::fp64);
  const auto parameters = single.named_parameters(), exact_parameters = exact.named_parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const auto from = parameters[p].tensor.values<float>();
    const auto to = exact_parameters[p].tensor.values<double>();
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = from[i] *= 8;
  }
  const Tensor tokens = random_tokens(config, 2, config.sequence, 5),
               targets = random_tokens(config, 2, config.sequence, 6);
  autograd::backward(single.loss(tokens, targets));
  autograd::backward(exact.loss(tokens, targets));
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    CAPTURE(parameters[p].name);
    const auto seen = parameters[p].tensor.grad().values<float>();
    const auto right = exact_parameters[p].tensor.grad().values<double>();
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < right.size(); ++i) {
      worst = std::max(worst, std::abs(seen[i] - right[i]));
      largest = std::max(largest, std::abs(right[i]));
    }
    CHECK(worst < 3e-3 * largest);  // a score of thousands is rounded by 2e-4, and so is its exp
  }
}

TEST_CASE("every gradient agrees with central differences when the head is tied") {
  Config config = tiny_config();
  config.tied_head = true;
  config.kv_heads = 3;
  config.layers = 1;
  check_gradients(config);
}

TEST_CASE("parameters have the names and shapes of LlamaForCausalLM") {
  const Config config = tiny_config();
  const Model model(config);
  const std::vector<std::pair<std::string, autograd::Shape>> of_a_block = {
      {"input_layernorm.weight", {12}},      {"self_attn.q_proj.weight", {12, 12}},
      {"self_attn.k_proj.weight", {4, 12}},  {"self_attn.v_proj.weight", {4, 12}},
      {"self_attn.o_proj.weight", {12, 12}}, {"post_attention_layernorm.weight", {12}},
      {"mlp.gate_proj.weight", {7, 12}},     {"mlp.up_proj.weight", {7, 12}},
      {"mlp.down_proj.weight", {12, 7}},
  };
  std::vector<std::pair<std::string, autograd::Shape>> expected = {{"model.embed_tokens.weight",
                                                                    {11, 12}}},
                                                       seen;
  for (const char* block : {"model.layers.0.", "model.layers.1."}) {
    for (const auto& [name, shape] : of_a_block) expected.emplace_back(block + name, shape);
  }
  expected.emplace_back("model.norm.weight", autograd::Shape{12});
  expected.emplace_back("lm_head.weight", autograd::Shape{11, 12});
  for (const auto& [name, tensor] : model.named_parameters())
    seen.emplace_back(name, tensor.shape());
  CHECK((seen == expected));
}

TEST_CASE("a model has as many parameters as its config counts") {
  for (const bool tied : {false, true}) {
    for (const std::int64_t kv_heads : {1, 3}) {
      Config config = tiny_config();
      config.tied_head = tied;
      config.kv_heads = kv_heads;
      std::int64_t count = 0;
      for (const Tensor& parameter : Model(config).parameters()) count += parameter.elements();
      CHECK(count == parameter_count(config));
    }
  }
}

TEST_CASE("a tied head is the embedding itself and is listed once") {
  Config config = tiny_config();
  config.tied_head = true;
  const Model model(config, DType::fp64);
  const auto once = model.named_parameters(), twice = model.named_parameters(true);
  CHECK(std::none_of(once.begin(), once.end(),
                     [](const NamedTensor& p) { return p.name == "lm_head.weight"; }));
  REQUIRE(twice.back().name == "lm_head.weight");
  CHECK(twice.back().tensor.is_same(twice.front().tensor));
}

TEST_CASE("a token changes the logits from its position on and none before") {
  const Config config = tiny_config();
  const Model model(config, DType::fp64);
  const std::int64_t length = config.sequence;
  const Tensor tokens = random_tokens(config, 1, length, 1);
  const std::vector<double> before = logits_of(model, tokens);
  for (std::int64_t changed = 0; changed < length; ++changed) {
    CAPTURE(changed);
    const Tensor other = tokens.clone();
    std::int32_t& token = other.values<std::int32_t>()[changed];
    token = (token + 1) % static_cast<std::int32_t>(config.vocabulary);
    const std::vector<double> after = logits_of(model, other);
    const auto border = changed * config.vocabulary;
    CHECK(std::equal(before.begin(), before.begin() + border, after.begin()));
    for (std::int64_t t = changed; t < length; ++t) {
      const auto row = before.begin() + t * config.vocabulary;
      CHECK_FALSE(std::equal(row, row + config.vocabulary, after.begin() + t * config.vocabulary));
    }
  }
}

TEST_CASE("sequences of a batch do not influence each other") {
  const Config config = tiny_config();
  const Model model(config, DType::fp64);
  const Tensor both = random_tokens(config, 2, 5, 3);
  const std::vector<double> together = logits_of(model, both);
  const std::vector<double> second = logits_of(model, both.narrow(0, 1, 1).contiguous());
  for (std::size_t i = 0; i < second.size(); ++i)
    CHECK(together[second.size() + i] == doctest::Approx(second[i]).epsilon(1e-12));
}

TEST_CASE("the order of earlier tokens matters because of their positions") {
  const Config config = tiny_config();
  const Model model(config, DType::fp64);
  const std::vector<double> one = logits_of(model, Tensor::from<std::int32_t>({1, 2, 3}, {1, 3}));
  const std::vector<double> other = logits_of(model, Tensor::from<std::int32_t>({2, 1, 3}, {1, 3}));
  CHECK(std::abs(one.back() - other.back()) > 1e-9);
}

TEST_CASE("RoPE rotates pairs half a head apart by position times frequency") {
  const autograd::RopeTable table = autograd::rope_table(8, 4, 10000, DType::fp64);
  // Two positions; numbers 0 and 2 of a head are a pair, and so are 1 and 3.
  const Tensor x = Tensor::from<double>({1, 0, 0, 1, 1, 0, 0, 1}, {1, 2, 4});
  const Tensor turned = autograd::rope(x, table, 2).contiguous();
  const auto values = turned.values<double>();
  for (int row = 0; row < 2; ++row) {
    // The frequencies are 10000^0 and 10000^(-2/4).
    const double position = row + 2, slow = position * 0.01;
    CHECK(values[4 * row + 0] == doctest::Approx(std::cos(position)));
    CHECK(values[4 * row + 2] == doctest::Approx(std::sin(position)));
    CHECK(values[4 * row + 1] == doctest::Approx(-std::sin(slow)));
    CHECK(values[4 * row + 3] == doctest::Approx(std::cos(slow)));
  }
}

TEST_CASE("with RoPE, the product of a query and a key depends only on their distance") {
  constexpr std::int64_t size = 6;
  const autograd::RopeTable table = autograd::rope_table(40, size, 10000, DType::fp64);
  std::vector<double> q(size), k(size);
  for (std::int64_t i = 0; i < size; ++i)
    q[i] = random_normal(1, 0, i), k[i] = random_normal(2, 0, i);
  const auto match = [&](std::int64_t at, std::int64_t with) {
    const Tensor a = autograd::rope(Tensor::from(q, {1, 1, size}), table, at).contiguous();
    const Tensor b = autograd::rope(Tensor::from(k, {1, 1, size}), table, with).contiguous();
    const auto x = a.values<double>(), y = b.values<double>();
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
  };
  for (const std::int64_t shift : {1, 7, 30})
    CHECK(match(5 + shift, 2 + shift) == doctest::Approx(match(5, 2)).epsilon(1e-12));
  CHECK(std::abs(match(5, 2) - match(2, 5)) > 1e-6);
}

TEST_CASE("initial values depend only on the seed and the parameter's name") {
  Config config = tiny_config();
  const Model one(config, DType::fp64), again(config, DType::fp64);
  config.layers = 1;
  config.vocabulary = 29;
  const Model smaller(config, DType::fp64);
  config.initialise_seed = 1;
  const Model other(config, DType::fp64);

  const auto first_of = [](const Model& model, const std::string& name) {
    for (const auto& [known, tensor] : model.named_parameters()) {
      if (known == name) return tensor.values<double>()[0];
    }
    return 0.0;
  };
  const std::string q = "model.layers.0.self_attn.q_proj.weight",
                    k = "model.layers.0.self_attn.k_proj.weight";
  CHECK(first_of(one, q) == first_of(again, q));
  CHECK(first_of(one, q) == first_of(smaller, q));  // and not on the other sizes
  CHECK(first_of(one, q) != first_of(other, q));
  CHECK(first_of(one, q) != first_of(one, k));
  CHECK(first_of(one, q) != first_of(one, "model.layers.1.self_attn.q_proj.weight"));
  CHECK(first_of(one, "model.norm.weight") == 1);
}

TEST_CASE("the hooks of every module fire once in forward and in backward") {
  for (const bool tied : {false, true}) {
    Config config = tiny_config();
    config.tied_head = tied;
    Model model(config);
    std::map<std::string, int> entered, left, entered_in_backward;
    for (const auto& [module_name, module] : model.named_modules()) {
      const std::string name = module_name;
      module->register_forward_pre_hook([&entered, name] { ++entered[name]; });
      module->register_forward_hook([&, name](const Tensor& output) {
        ++left[name];
        output.register_hook([&, name](const Tensor&) { ++entered_in_backward[name]; });
      });
    }
    const Tensor tokens = random_tokens(config, 2, 5, 1), targets = random_tokens(config, 2, 5, 2);
    autograd::backward(model.loss(tokens, targets));
    for (const auto& [name, module] : model.named_modules()) {
      CAPTURE(name);
      CHECK(entered[name] == 1);
      CHECK(left[name] == 1);
      CHECK(entered_in_backward[name] == 1);
    }
  }
}

TEST_CASE("an untrained model finds all tokens about equally likely") {
  const Config config = named_config("tiny");
  const Model model(config);
  const double loss =
      loss_without_grad(model, random_tokens(config, 2, 128, 1), random_tokens(config, 2, 128, 2));
  CHECK(loss == doctest::Approx(std::log(256.0)).epsilon(0.02));
}

TEST_CASE("a model refuses an inconsistent config and sequences that are too long") {
  Config config = tiny_config();
  const Model model(config);
  CHECK_THROWS_WITH_AS(model.forward(random_tokens(config, 1, 10, 0)),
                       "the model reads tokens of shape [sequences, 1 to 9], but got [1, 10]",
                       Error);
  config.heads = 5;
  CHECK_THROWS_WITH_AS(Model{config},
                       "d_model 12 does not divide into 5 heads: choose a width that is a multiple "
                       "of the number of heads",
                       Error);
}
