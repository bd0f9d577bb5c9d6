// How the tokens of a sequence are divided among ranks (context parallel), and which keys a rank
// meets in which step of a ring. An algorithm as data: ring_attention() runs these steps, and
// `ringside step context` prints them.
//
//     4 ranks      contiguous: 4 pieces             zigzag: 8 pieces
//     rank 0       0 . . .                          0 . . . . . . 7
//     rank 1       . 1 . .                          . 1 . . . . 6 .
//     rank 2       . . 2 .                          . . 2 . . 5 . .
//     rank 3       . . . 3                          . . . 3 4 . . .
//
// A query sees the keys up to its own position, so in contiguous order rank 3 computes seven times
// as much as rank 0. In zigzag order all ranks compute the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ringside::context_parallel {

enum class TokenOrder { contiguous, zigzag };
// How the queries of a rank meet the keys of the others. See attention.hpp.
enum class Exchange { all_gather, ring, ulysses };

// In the order of the enumerators; the values of --token-order and --context.
const std::vector<std::string>& order_names();
const std::vector<std::string>& exchange_names();
inline const std::string& name_of(TokenOrder order) {
  return order_names()[static_cast<std::size_t>(order)];
}
inline const std::string& name_of(Exchange exchange) {
  return exchange_names()[static_cast<std::size_t>(exchange)];
}

struct ContextOptions {
  Exchange exchange = Exchange::ring;
  TokenOrder order = TokenOrder::zigzag;
  bool operator==(const ContextOptions&) const = default;
};

// Pieces of equal length into which a sequence is cut: one or two for each rank.
int piece_count(TokenOrder order, int ranks);
// Those of a rank, ascending.
std::vector<int> pieces_of(TokenOrder order, int ranks, int rank);

// Pieces first .. first + count - 1, counted among those of one rank.
struct PieceRange {
  int first = 0, count = 0;
};

// What a rank computes in one step of the ring: these of its queries see these of the keys that are
// here. If `causal`, both are all of the rank's own pieces and each query sees the keys up to its
// own position; otherwise every query sees every key. Without queries nothing is visible.
struct RingStep {
  int keys_of = 0;  // the rank whose keys and values are here
  PieceRange queries, keys;
  bool causal = false;
};

// Step 0 .. ranks - 1. Keys travel to the next rank after each step, so in step s a rank has those
// of the rank s places before it. Liu, Zaharia and Abbeel, "Ring attention with blockwise
// transformers for near-infinite context" (2023), section 3.
RingStep ring_step(TokenOrder order, int ranks, int rank, int step);

// The pairs of a query and a key that it sees, in pieces of `length` tokens: attention multiplies
// vectors so often. Of a step, and of all steps of a rank in a sequence of `tokens` that
// piece_count() divides.
std::int64_t visible_pairs(const RingStep& step, std::int64_t length);
std::int64_t visible_pairs(TokenOrder order, int ranks, int rank, std::int64_t tokens);

// Throws Error, one sentence that says what would fit, unless `ranks` can divide sequences of this
// length so, and with Exchange::ulysses the heads of a rank.
void require_divisible(const ContextOptions& options, int ranks, std::int64_t tokens,
                       std::int64_t heads, std::int64_t kv_heads);

}  // namespace ringside::context_parallel
