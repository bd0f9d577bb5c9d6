// A small text and a small model, with grouped query heads, for tests that train in this process.
#pragma once

#include "transformer/data/corpus.hpp"
#include "transformer/model.hpp"

namespace ringside::testing {

inline transformer::Bytes small_text() {
  transformer::Bytes text(20'000);
  for (std::size_t i = 0; i < text.size(); ++i)
    text[i] = static_cast<std::uint8_t>("the ring passes each chunk on. "[i % 31] + i % 5);
  return text;
}

inline transformer::Config small_config() {
  transformer::Config config;
  config.d_model = 16;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.d_ff = 24;
  config.sequence = 16;
  return config;
}

}  // namespace ringside::testing
