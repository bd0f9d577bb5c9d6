// Small models for tests, with all that a Llama has: two blocks, and query heads that share a key
// head. And a text to train on.
#pragma once

#include <cstdint>
#include <string_view>

#include "transformer/config.hpp"
#include "transformer/data/packed_tokens.hpp"

namespace ringside::tests {

// Reads bytes.
inline transformer::Config small_config() {
  return {.d_model = 16, .layers = 2, .heads = 4, .kv_heads = 2, .d_ff = 24, .sequence = 16};
}

// With no value that a reader of config.json takes where there is none.
inline transformer::Config tiny_config() {
  return {.vocabulary = 17,
          .d_model = 8,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .d_ff = 6,
          .sequence = 10,
          .rope_theta = 500,
          .norm_epsilon = 1e-4};
}

inline transformer::Bytes small_text(std::size_t size = 20'000) {
  constexpr std::string_view line = "The ring passes each chunk on to its right-hand neighbour. ";
  transformer::Bytes text(size);
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<std::uint8_t>(line[i % line.size()]);
  return text;
}

}  // namespace ringside::tests
