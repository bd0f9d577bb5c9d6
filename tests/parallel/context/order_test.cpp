// Which rank has which tokens, and what it computes in each step of a ring.
#include "parallel/context/order.hpp"

#include <algorithm>
#include <set>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::context_parallel;
using tests::contains;

namespace {

constexpr TokenOrder orders[] = {TokenOrder::contiguous, TokenOrder::zigzag};

std::string refusal(const ContextOptions& options, int ranks, std::int64_t tokens,
                    std::int64_t heads, std::int64_t kv_heads) {
  try {
    require_divisible(options, ranks, tokens, heads, kv_heads);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every piece of a sequence belongs to one rank") {
  for (const TokenOrder order : orders)
    for (int ranks = 1; ranks <= 9; ++ranks) {
      std::multiset<int> pieces;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto own = pieces_of(order, ranks, rank);
        CHECK(std::is_sorted(own.begin(), own.end()));
        pieces.insert(own.begin(), own.end());
      }
      CHECK(static_cast<int>(pieces.size()) == piece_count(order, ranks));
      int next = 0;
      for (const int piece : pieces) CHECK(piece == next++);
    }
}

TEST_CASE("the steps of a ring compute each visible pair of pieces once, and no other") {
  for (const TokenOrder order : orders)
    for (int ranks = 1; ranks <= 9; ++ranks) {
      CAPTURE(ranks);
      std::set<std::pair<int, int>> pairs;
      for (int rank = 0; rank < ranks; ++rank)
        for (int step = 0; step < ranks; ++step) {
          const RingStep at = ring_step(order, ranks, rank, step);
          CHECK(at.keys_of == (rank - step + ranks) % ranks);
          CHECK(at.causal == (step == 0));
          const auto queries = pieces_of(order, ranks, rank),
                     keys = pieces_of(order, ranks, at.keys_of);
          for (int q = at.queries.first; q < at.queries.first + at.queries.count; ++q)
            for (int k = at.keys.first; k < at.keys.first + at.keys.count; ++k) {
              if (at.causal && k > q) continue;
              if (!at.causal) CHECK(keys.at(k) < queries.at(q));  // unmasked: all of it is visible
              CHECK(pairs.emplace(queries.at(q), keys.at(k)).second);
            }
        }
      const int count = piece_count(order, ranks);
      CHECK(static_cast<int>(pairs.size()) == count * (count + 1) / 2);
    }
}

TEST_CASE("zigzag order divides products evenly and contiguous gives the last rank 2c-1 times") {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    const std::int64_t tokens = 2 * ranks * 64;
    std::int64_t all = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      CHECK(visible_pairs(TokenOrder::zigzag, ranks, rank, tokens) ==
            visible_pairs(TokenOrder::zigzag, ranks, 0, tokens));
      all += visible_pairs(TokenOrder::contiguous, ranks, rank, tokens);
    }
    CHECK(all == tokens * (tokens + 1) / 2);
    CHECK(ranks * visible_pairs(TokenOrder::zigzag, ranks, 0, tokens) == all);
    const double ratio =
        static_cast<double>(visible_pairs(TokenOrder::contiguous, ranks, ranks - 1, tokens)) /
        static_cast<double>(visible_pairs(TokenOrder::contiguous, ranks, 0, tokens));
    CHECK(ratio == doctest::Approx(2 * ranks - 1).epsilon(0.02));
  }
}

TEST_CASE("the visible pairs of a rank are those counted token by token") {
  for (const TokenOrder order : orders)
    for (int ranks = 1; ranks <= 4; ++ranks) {
      const int pieces = piece_count(order, ranks), length = 3;
      for (int rank = 0; rank < ranks; ++rank) {
        std::int64_t pairs = 0;
        for (const int piece : pieces_of(order, ranks, rank))
          for (int token = piece * length; token < (piece + 1) * length; ++token)
            pairs += token + 1;
        CHECK(visible_pairs(order, ranks, rank, pieces * length) == pairs);
      }
    }
}

TEST_CASE("sequences and heads that cannot be divided are refused with what would fit") {
  CHECK(refusal({Exchange::ring, TokenOrder::zigzag}, 4, 12, 8, 8) ==
        "sequences of 12 tokens do not divide into 8 equal pieces, which zigzag order needs on 4 "
        "context-parallel ranks: choose a --sequence that is a multiple of 8");
  CHECK(refusal({Exchange::ring, TokenOrder::contiguous}, 4, 12, 8, 8) == "");
  CHECK(refusal({Exchange::ulysses, TokenOrder::contiguous}, 4, 16, 8, 2) ==
        "--context ulysses divides the heads of a rank, 8 query and 2 key heads, among 4 "
        "context-parallel ranks: choose a cp that divides 2, or --context ring");
  CHECK(refusal({Exchange::ring, TokenOrder::zigzag}, 1, 13, 8, 2) == "");
}
