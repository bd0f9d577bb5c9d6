// Causal attention and its gradients by their definition: plain loops in fp64 with the whole row of
// probabilities, no tiles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ringside::exercises {

// q and y are [batch, heads, queries, head_size], k and v [batch, kv_heads, keys, head_size]. The
// queries are at the last positions of the keys.
struct AttentionShape {
  std::int64_t batch, heads, kv_heads, queries, keys, head_size;
  std::int64_t group() const { return heads / kv_heads; }  // query heads of a kv head
  std::int64_t sees(std::int64_t query) const { return query + 1 + keys - queries; }
  std::string text() const;  // "2 heads, 1 kv heads, 7 queries, 9 keys"
};

struct AttentionTensors {
  std::vector<double> q, k, v, dy;  // no gradients without dy
};

// q, k and v: fp32 numbers between -1 and 1, those of q times `spread`. With `bf16` they are
// rounded to it.
AttentionTensors random_attention(const AttentionShape& shape, std::uint64_t seed, float spread,
                                  bool bf16);

// log_sums: of each query, the logarithm of its sum of exp(score).
struct DefinedAttention {
  std::vector<double> y, log_sums, dq, dk, dv;
};

// `only`: dy counts for this query head of each group alone; -1: for all.
DefinedAttention attention_by_definition(const AttentionShape& shape, const AttentionTensors& given,
                                         std::int64_t only = -1);

}  // namespace ringside::exercises
