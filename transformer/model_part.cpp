#include "transformer/model_part.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/error.hpp"

namespace ringside::transformer {
namespace {

// "1, 2 or 4": the numbers of ranks that divide both sizes.
std::string common_divisors(std::int64_t a, std::int64_t b) {
  std::vector<std::string> divisors;
  const std::int64_t common = std::gcd(a, b);
  for (std::int64_t d = 1; d <= std::min<std::int64_t>(common, 1024); ++d)
    if (common % d == 0) divisors.push_back(std::to_string(d));
  if (divisors.size() == 1) return divisors.front();
  const std::string last = divisors.back();
  divisors.pop_back();
  return fmt::format("{} or {}", fmt::join(divisors, ", "), last);
}

}  // namespace

bool ModelPart::holds_layer(std::int64_t layer) const {
  return layers.empty() || std::binary_search(layers.begin(), layers.end(), layer);
}

std::vector<std::int64_t> ModelPart::layers_of(const Config& config) const {
  if (!layers.empty()) return layers;
  std::vector<std::int64_t> all(static_cast<std::size_t>(config.layers));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void require_divisible(const Config& config, int tensor_ranks) {
  const std::int64_t t = tensor_ranks;
  require(t >= 1, "a matrix needs at least 1 rank, not {}", t);
  require(config.heads % t == 0 && config.d_ff % t == 0,
          "{} heads and d_ff {} cannot be divided among {} tensor-parallel ranks: choose tp={}",
          config.heads, config.d_ff, t, common_divisors(config.heads, config.d_ff));
  require(config.kv_heads % t == 0 || t % config.kv_heads == 0,
          "{} key and value heads cannot be divided among {} tensor-parallel ranks: choose a tp "
          "that divides {}, or a multiple of it",
          config.kv_heads, t, config.kv_heads);
  require(config.vocabulary >= t,
          "a vocabulary of {} has no row for each of {} tensor-parallel ranks: choose a tp of at "
          "most {}",
          config.vocabulary, t, config.vocabulary);
}

void require_experts_divisible(const Config& config, int expert_ranks) {
  require(expert_ranks == 1 || config.experts > 0,
          "ep divides the experts of a model among {} ranks, but this model has none: choose "
          "--model moe-tiny or --experts 8, or leave out ep",
          expert_ranks);
  require(config.experts % expert_ranks == 0,
          "{} experts cannot be divided evenly among {} expert-parallel ranks: choose an ep that "
          "divides {}",
          config.experts, expert_ranks, config.experts);
}

void validate(const ModelPart& part, const Config& config) {
  require(part.tensor_rank >= 0 && part.tensor_rank < part.tensor_ranks,
          "there is no tensor-parallel rank {} among {}", part.tensor_rank, part.tensor_ranks);
  require(part.expert_rank >= 0 && part.expert_rank < part.expert_ranks,
          "there is no expert-parallel rank {} among {}", part.expert_rank, part.expert_ranks);
  require_divisible(config, part.tensor_ranks);
  require_experts_divisible(config, part.expert_ranks);
  for (std::size_t i = 0; i < part.layers.size(); ++i)
    require(part.layers[i] >= 0 && part.layers[i] < config.layers &&
                (i == 0 || part.layers[i - 1] < part.layers[i]),
            "a part of a model lists its layers in ascending order, from 0 to {}, not {}",
            config.layers - 1, fmt::join(part.layers, ", "));
}

}  // namespace ringside::transformer
