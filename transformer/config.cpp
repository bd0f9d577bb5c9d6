#include "transformer/config.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text/words.hpp"

namespace ringside::transformer {
namespace {

// Two experts of half the width compute what one part of tiny computes.
constexpr Config moe_tiny{.d_ff = 172, .experts = 8, .experts_per_token = 2};

// vocabulary, d_model, layers, heads, kv_heads, d_ff, sequence
constexpr std::pair<const char*, Config> named_configs[] = {
    {"tiny", {256, 128, 4, 4, 4, 344, 128}},
    {"moe-tiny", moe_tiny},
    {"lab", {10000, 512, 4, 16, 16, 1344, 256}},
    {"small", {10000, 768, 12, 12, 12, 3072, 256}},
    {"medium", {10000, 1024, 24, 16, 16, 4096, 256}},
    {"large", {10000, 1280, 36, 20, 20, 5120, 256}},
    {"xl", {10000, 1600, 48, 25, 25, 6400, 256}},
};

}  // namespace

std::vector<std::string> config_names() {
  std::vector<std::string> names;
  for (const auto& [name, config] : named_configs) names.emplace_back(name);
  return names;
}

Config named_config(const std::string& name) {
  for (const auto& [known, config] : named_configs)
    if (name == known) return config;
  fail("there is no model size named '{}'{}; the sizes are {}", name,
       did_you_mean(name, config_names()), fmt::join(config_names(), ", "));
}

void validate(const Config& config) {
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"vocabulary", config.vocabulary}, {"d_model", config.d_model},   {"layers", config.layers},
      {"heads", config.heads},           {"kv_heads", config.kv_heads}, {"d_ff", config.d_ff},
      {"sequence", config.sequence},
  };
  for (const auto& [name, value] : sizes) {
    require(value >= 1, "{} is {}, but a model needs at least 1", name, value);
    // More than any model has, and small enough that no product of two sizes overflows.
    require(value <= 1'000'000'000, "{} is {}, but at most 1000000000 is possible", name, value);
  }
  require(config.experts >= 0 && config.experts <= 65536,
          "experts is {}, but 1 to 65536 are possible, or 0 for an ordinary feed-forward part",
          config.experts);
  require(config.experts == 0 ||
              (config.experts_per_token >= 1 && config.experts_per_token <= config.experts),
          "experts_per_token is {}, but a token can use 1 to {} of {} experts",
          config.experts_per_token, config.experts, config.experts);
  require(std::isfinite(config.balance) && config.balance >= 0,
          "balance is {}, but the weight of the balance loss is a number of at least 0",
          config.balance);
  require(config.head_dim >= 0 && config.head_dim <= 1'000'000,
          "head_dim is {}, but 1 to 1000000 is possible", config.head_dim);
  require(config.head_dim > 0 || config.d_model % config.heads == 0,
          "d_model {} does not divide into {} heads: choose a width that is a multiple of the "
          "number of heads",
          config.d_model, config.heads);
  require(config.head_size() % 2 == 0,
          "a head is {} wide{}, but RoPE rotates pairs and needs an even width", config.head_size(),
          config.head_dim > 0
              ? " (head_dim)"
              : fmt::format(" (d_model {} / {} heads)", config.d_model, config.heads));
  require(config.heads % config.kv_heads == 0,
          "{} heads cannot share {} key and value heads evenly: choose kv_heads that divides heads",
          config.heads, config.kv_heads);
  require(std::isfinite(config.rope_theta) && config.rope_theta > 0,
          "rope_theta is {}, but it must be a positive number", config.rope_theta);
  const RopeScaling& scaling = config.rope_scaling;
  require(std::isfinite(scaling.factor) && scaling.factor >= 1,
          "the factor of rope_scaling is {}, but it must be at least 1", scaling.factor);
  require(scaling.kind != RopeScaling::llama3 ||
              (scaling.low_frequency > 0 && scaling.high_frequency > scaling.low_frequency &&
               std::isfinite(scaling.high_frequency) && scaling.old_sequence >= 1),
          "rope_scaling has low_freq_factor {}, high_freq_factor {} and "
          "original_max_position_embeddings {}, but it needs 0 < low < high and a length of at "
          "least 1",
          scaling.low_frequency, scaling.high_frequency, scaling.old_sequence);
  require(std::isfinite(config.norm_epsilon) && config.norm_epsilon > 0,
          "norm_epsilon is {}, but it must be a positive number", config.norm_epsilon);
}

namespace {

// Linear scaling slows all pairs down by the factor. llama3 is Meta's rule of Llama 3.1: pairs that
// turn often within the old length stay as they are, and pairs that turn less than low_frequency
// times are slowed down by the factor. Between the two the frequency is interpolated.
double scaled(double frequency, const RopeScaling& scaling) {
  if (scaling.kind == RopeScaling::none) return frequency;
  if (scaling.kind == RopeScaling::linear) return frequency / scaling.factor;
  constexpr double pi = 3.14159265358979323846;
  const double turns = static_cast<double>(scaling.old_sequence) * frequency / (2 * pi);
  const double unscaled = std::clamp(
      (turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency), 0.0, 1.0);
  return (1 - unscaled) * frequency / scaling.factor + unscaled * frequency;
}

}  // namespace

std::vector<double> rope_frequencies(const Config& config) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < config.head_size() / 2; ++i) {
    const double frequency = std::pow(
        config.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.head_size()));
    frequencies.push_back(scaled(frequency, config.rope_scaling));
  }
  return frequencies;
}

namespace {

// With so many experts in each block.
std::int64_t count_with(const Config& config, std::int64_t experts) {
  const std::int64_t d = config.d_model, q = config.heads * config.head_size(),
                     kv = config.kv_heads * config.head_size();
  const std::int64_t attention = 2 * q * d + 2 * kv * d;  // q and o, k and v
  const std::int64_t feed_forward =                       // gate, up, down; and the router
      config.experts == 0 ? 3 * d * config.d_ff
                          : experts * 3 * d * config.d_ff + d * config.experts;
  const std::int64_t norms = 2 * d + (config.qk_norm ? 2 * config.head_size() : 0);
  const std::int64_t embedding = config.vocabulary * d;
  return embedding + config.layers * (attention + feed_forward + norms) + d +
         (config.tied_head ? 0 : embedding);
}

}  // namespace

std::int64_t parameter_count(const Config& config) {
  return count_with(config, config.experts);
}

std::int64_t active_parameter_count(const Config& config) {
  return count_with(config, config.experts_per_token);
}

}  // namespace ringside::transformer
