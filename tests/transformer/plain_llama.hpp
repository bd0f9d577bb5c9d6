// PlainLlama: the Llama model in plain loops over doubles, without Ringside's tensors and ops.
// Tests compare the real model with it.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "transformer/config.hpp"

class PlainLlama {
 public:
  using Row = std::vector<double>;  // of one token
  using Rows = std::vector<Row>;    // of a sequence

  // `weights` has the names of LlamaForCausalLM, row-major. A tied head must also be there as
  // lm_head.weight.
  PlainLlama(const ringside::transformer::Config& config, std::map<std::string, Row> weights)
      : c_(config), w_(std::move(weights)) {}

  Rows logits(const std::vector<std::int32_t>& tokens) const {
    Rows x;
    for (const std::int32_t token : tokens) {
      const Row& table = w_.at("model.embed_tokens.weight");
      x.emplace_back(table.begin() + token * c_.d_model, table.begin() + (token + 1) * c_.d_model);
    }
    for (std::int64_t layer = 0; layer < c_.layers; ++layer) {
      const std::string block = "model.layers." + std::to_string(layer) + ".";
      add(x, attention(block + "self_attn.", norms(x, block + "input_layernorm.weight")));
      add(x, feed_forward(block + "mlp.", norms(x, block + "post_attention_layernorm.weight")));
    }
    return times(norms(x, "model.norm.weight"), "lm_head.weight");
  }

 private:
  static void add(Rows& x, const Rows& y) {
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t i = 0; i < x[t].size(); ++i) x[t][i] += y[t][i];
    }
  }

  // y = W x, where W is [out, in].
  Rows times(const Rows& x, const std::string& name) const {
    const Row& w = w_.at(name);
    const std::size_t in = x[0].size(), out = w.size() / in;
    Rows y(x.size(), Row(out, 0.0));
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t o = 0; o < out; ++o) {
        for (std::size_t i = 0; i < in; ++i) y[t][o] += w[o * in + i] * x[t][i];
      }
    }
    return y;
  }

  Rows norms(Rows x, const std::string& name) const {
    for (Row& row : x) {
      double squares = 0;
      for (const double number : row) squares += number * number;
      const double root = std::sqrt(squares / static_cast<double>(row.size()) + c_.norm_epsilon);
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = row[i] / root * w_.at(name)[i];
    }
    return x;
  }

  Rows feed_forward(const std::string& part, const Rows& x) const {
    Rows gate = times(x, part + "gate_proj.weight");
    const Rows up = times(x, part + "up_proj.weight");
    for (std::size_t t = 0; t < gate.size(); ++t) {
      for (std::size_t i = 0; i < gate[t].size(); ++i)
        gate[t][i] = gate[t][i] / (1 + std::exp(-gate[t][i])) * up[t][i];
    }
    return times(gate, part + "down_proj.weight");
  }

  // Rotates the numbers i and i + size/2 of every head by position * theta^(-2i/size).
  void rotate(Rows& x) const {
    const std::int64_t size = c_.head_size(), half = size / 2;
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t head = 0; head < x[t].size(); head += static_cast<std::size_t>(size)) {
        for (std::int64_t i = 0; i < half; ++i) {
          const double angle =
              static_cast<double>(t) /
              std::pow(c_.rope_theta, 2.0 * static_cast<double>(i) / static_cast<double>(size));
          double &low = x[t][head + i], &high = x[t][head + i + half];
          const double old_low = low;
          low = low * std::cos(angle) - high * std::sin(angle);
          high = high * std::cos(angle) + old_low * std::sin(angle);
        }
      }
    }
  }

  Rows attention(const std::string& part, const Rows& x) const {
    Rows q = times(x, part + "q_proj.weight"), k = times(x, part + "k_proj.weight");
    const Rows v = times(x, part + "v_proj.weight");
    rotate(q), rotate(k);
    const std::int64_t size = c_.head_size(), queries_per_key = c_.heads / c_.kv_heads;
    Rows attended(x.size(), Row(q[0].size(), 0.0));
    for (std::int64_t head = 0; head < c_.heads; ++head) {
      const std::int64_t at = head * size, kv = head / queries_per_key * size;
      for (std::size_t t = 0; t < x.size(); ++t) {
        Row scores;
        double total = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          double match = 0;
          for (std::int64_t i = 0; i < size; ++i) match += q[t][at + i] * k[s][kv + i];
          scores.push_back(std::exp(match / std::sqrt(static_cast<double>(size))));
          total += scores.back();
        }
        for (std::size_t s = 0; s <= t; ++s) {
          for (std::int64_t i = 0; i < size; ++i)
            attended[t][at + i] += scores[s] / total * v[s][kv + i];
        }
      }
    }
    return times(attended, part + "o_proj.weight");
  }

  ringside::transformer::Config c_;
  std::map<std::string, Row> w_;
};
