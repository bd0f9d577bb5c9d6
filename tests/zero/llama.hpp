// A Llama of three blocks for tests of traffic, order and memory: small, but large compared with
// the padding of its shards.
#pragma once

#include "autograd/engine/engine.hpp"
#include "transformer/model.hpp"

namespace ringside::tests {

inline transformer::Config small_llama(bool tied_head = false) {
  transformer::Config config;
  config.d_model = 32;
  config.layers = 3;
  config.heads = 4;
  config.kv_heads = 2;
  config.d_ff = 64;
  config.sequence = 8;
  config.tied_head = tied_head;
  return config;
}

// Of 2 x 8 tokens that depend on the rank.
inline autograd::Tensor loss_of(const transformer::Model& model, int rank) {
  std::vector<std::int32_t> tokens, targets;
  for (int i = 0; i < 16; ++i)
    tokens.push_back((i * 37 + rank * 11) % 256), targets.push_back((i * 53 + rank * 7 + 5) % 256);
  return model.loss(autograd::Tensor::from(tokens, {2, 8}),
                    autograd::Tensor::from(targets, {2, 8}));
}

}  // namespace ringside::tests
