// Attention of one head to some keys at a time, and an exchange with the neighbours in a ring.
// Students get this file whole.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "collectives/process_group.hpp"
#include "parallel/neighbour_exchange.hpp"

namespace ringside::context {

using collectives::ProcessGroup;

constexpr float infinity = std::numeric_limits<float>::infinity();

// Attention of n queries to the keys that they have seen so far. For each query: `total` is the sum
// of exp(score - shift) over these keys, `sum` that of exp(score - shift) v, and sum / total is the
// output of attention. Any `shift` gives the same quotient. attend() takes the largest score, so
// that no exp() overflows.
struct Partial {
  std::vector<float> shift, total;  // [n]
  std::vector<float> sum;           // [n, width]
};

// Of queries that have seen no key: shift -infinity, total and sum 0.
inline Partial nothing(std::size_t queries, std::size_t width) {
  return {std::vector<float>(queries, -infinity), std::vector<float>(queries),
          std::vector<float>(queries * width)};
}

// Attention of queries [n, width] to keys and values [m, width], whose first rows are the tokens
// first_query and first_key of the whole sequence. A query sees the keys up to its own position. It
// computes n m scores, also those that no query sees.
using Attend =
    std::function<Partial(std::span<const float> queries, std::span<const float> keys,
                          std::span<const float> values, int first_query, int first_key)>;

// `sent` goes to rank `to` while `received` arrives from rank `from`, both of them neighbours in
// the ring. Until wait() has returned, leave the memory alone.
class Exchange : public parallel::NeighbourExchange {
 public:
  Exchange(std::span<const float> sent, int to, std::span<float> received, int from,
           ProcessGroup& group)
      : NeighbourExchange(sent, to, received, from, group, "keys and values") {}
};

}  // namespace ringside::context

namespace student::context {
using namespace ringside::context;
}
