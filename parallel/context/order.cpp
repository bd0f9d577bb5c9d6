#include "parallel/context/order.hpp"

#include <numeric>

#include "base/error.hpp"

namespace ringside::context_parallel {

const std::vector<std::string>& order_names() {
  static const std::vector<std::string> names = {"contiguous", "zigzag"};
  return names;
}

const std::vector<std::string>& exchange_names() {
  static const std::vector<std::string> names = {"all_gather", "ring", "ulysses"};
  return names;
}

int piece_count(TokenOrder order, int ranks) {
  return order == TokenOrder::zigzag ? 2 * ranks : ranks;
}

std::vector<int> pieces_of(TokenOrder order, int ranks, int rank) {
  if (order == TokenOrder::contiguous) return {rank};
  return {rank, 2 * ranks - 1 - rank};
}

// In zigzag order every step after the first has two of the four pairs of pieces. Keys of an
// earlier rank j < r: both pieces of queries see piece j, and neither sees piece 2c-1-j. Keys of a
// later rank: only the second piece of queries sees them, and it sees both.
RingStep ring_step(TokenOrder order, int ranks, int rank, int step) {
  const int from = (rank - step + ranks) % ranks;
  const int pieces = piece_count(order, ranks) / ranks;
  if (from == rank) return {from, {0, pieces}, {0, pieces}, true};
  if (from < rank) return {from, {0, pieces}, {0, 1}, false};
  if (order == TokenOrder::contiguous) return {from, {}, {}, false};
  return {from, {1, 1}, {0, 2}, false};
}

std::int64_t visible_pairs(const RingStep& step, std::int64_t length) {
  const std::int64_t queries = step.queries.count * length, keys = step.keys.count * length;
  return step.causal ? queries * (queries + 1) / 2 : queries * keys;
}

std::int64_t visible_pairs(TokenOrder order, int ranks, int rank, std::int64_t tokens) {
  std::int64_t pairs = 0;
  for (int step = 0; step < ranks; ++step)
    pairs += visible_pairs(ring_step(order, ranks, rank, step), tokens / piece_count(order, ranks));
  return pairs;
}

void require_divisible(const ContextOptions& options, int ranks, std::int64_t tokens,
                       std::int64_t heads, std::int64_t kv_heads) {
  if (ranks == 1) return;
  const int pieces = piece_count(options.order, ranks);
  require(tokens % pieces == 0,
          "sequences of {} tokens do not divide into {} equal pieces, which {} order needs on {} "
          "context-parallel ranks: choose a --sequence that is a multiple of {}",
          tokens, pieces, name_of(options.order), ranks, pieces);
  if (options.exchange != Exchange::ulysses) return;
  require(heads % ranks == 0 && kv_heads % ranks == 0,
          "--context ulysses divides the heads of a rank, {} query and {} key heads, among {} "
          "context-parallel ranks: choose a cp that divides {}, or --context ring",
          heads, kv_heads, ranks, std::gcd(heads, kv_heads));
}

}  // namespace ringside::context_parallel
