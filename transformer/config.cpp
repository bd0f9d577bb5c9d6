#include "transformer/config.hpp"

#include <array>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/words.hpp"

namespace ringside::transformer {
namespace {

struct NamedSize {
  const char* name;
  std::int64_t vocabulary, d_model, d_ff, layers, heads, sequence;
};

constexpr std::array<NamedSize, 6> named_sizes = {{
    {"tiny", 256, 128, 344, 4, 4, 128},
    {"lab", 10000, 512, 1344, 4, 16, 256},
    {"small", 10000, 768, 3072, 12, 12, 256},
    {"medium", 10000, 1024, 4096, 24, 16, 256},
    {"large", 10000, 1280, 5120, 36, 20, 256},
    {"xl", 10000, 1600, 6400, 48, 25, 256},
}};

}  // namespace

std::vector<std::string> config_names() {
  std::vector<std::string> names;
  for (const NamedSize& size : named_sizes) names.emplace_back(size.name);
  return names;
}

Config named_config(const std::string& name) {
  for (const NamedSize& size : named_sizes) {
    if (name != size.name) continue;
    Config config;
    config.vocabulary = size.vocabulary;
    config.d_model = size.d_model;
    config.d_ff = size.d_ff;
    config.layers = size.layers;
    config.heads = config.kv_heads = size.heads;
    config.sequence = size.sequence;
    return config;
  }
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
  require(config.d_model % config.heads == 0,
          "d_model {} does not divide into {} heads: choose a width that is a multiple of the "
          "number of heads",
          config.d_model, config.heads);
  require(
      config.head_size() % 2 == 0,
      "a head is {} wide (d_model {} / {} heads), but RoPE rotates pairs and needs an even width",
      config.head_size(), config.d_model, config.heads);
  require(config.heads % config.kv_heads == 0,
          "{} heads cannot share {} key and value heads evenly: choose kv_heads that divides heads",
          config.heads, config.kv_heads);
  require(std::isfinite(config.rope_theta) && config.rope_theta > 0,
          "rope_theta is {}, but it must be a positive number", config.rope_theta);
  require(std::isfinite(config.norm_epsilon) && config.norm_epsilon > 0,
          "norm_epsilon is {}, but it must be a positive number", config.norm_epsilon);
}

std::int64_t parameter_count(const Config& config) {
  const std::int64_t d = config.d_model, kv = config.kv_heads * config.head_size();
  const std::int64_t attention = d * d + 2 * kv * d + d * d;  // q, k and v, o
  const std::int64_t feed_forward = 3 * d * config.d_ff;      // gate, up, down
  const std::int64_t norms = 2 * d;
  const std::int64_t embedding = config.vocabulary * d;
  return embedding + config.layers * (attention + feed_forward + norms) + d +
         (config.tied_head ? 0 : embedding);
}

}  // namespace ringside::transformer
