// Causal attention of one head over a sequence whose tokens are divided among ranks: keys and
// values travel round the ring, and each rank merges what its queries see of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "exercises/42-ring-attention/attention.hpp"

namespace ringside::context {

// The two of 2 `ranks` pieces of the sequence that `rank` holds, ascending.
inline std::vector<int> pieces_of(int ranks, int rank) {
  return {rank, 2 * ranks - 1 - rank};
}

// Adds to `seen` what the same queries see of further keys.
inline void merge(Partial& seen, const Partial& more) {
  const std::size_t queries = seen.total.size(), width = seen.sum.size() / queries;
  for (std::size_t i = 0; i < queries; ++i) {
    const float shift = std::max(seen.shift[i], more.shift[i]);
    if (shift == -infinity) continue;
    const float old = std::exp(seen.shift[i] - shift), added = std::exp(more.shift[i] - shift);
    seen.shift[i] = shift;
    seen.total[i] = old * seen.total[i] + added * more.total[i];
    for (std::size_t c = i * width; c < (i + 1) * width; ++c)
      seen.sum[c] = old * seen.sum[c] + added * more.sum[c];
  }
}

// q, k and v [2 n, width]: the two pieces of this rank, of n tokens each, one after the other. The
// output of attention for its queries, in the same order.
inline std::vector<float> ring_attention(std::span<const float> q, std::span<const float> k,
                                         std::span<const float> v, int width, const Attend& attend,
                                         ProcessGroup& group) {
  const int ranks = group.size(), rank = group.rank();
  const int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
  const std::size_t piece = q.size() / 2;  // its numbers
  const int tokens = static_cast<int>(piece) / width;
  const std::vector<int> own = pieces_of(ranks, rank);

  std::vector<Partial> seen(2, nothing(piece / width, width));
  std::vector<float> here(k.begin(), k.end()), arriving(2 * k.size());
  here.insert(here.end(), v.begin(), v.end());
  for (int step = 0; step < ranks; ++step) {
    std::optional<Exchange> exchange;
    if (step + 1 < ranks) exchange.emplace(here, next, arriving, before, group);
    const std::vector<int> theirs = pieces_of(ranks, (rank - step + ranks) % ranks);
    const std::span<const float> keys(here.data(), k.size()), values(&here[k.size()], v.size());
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 2; ++j) {
        if (theirs[j] > own[i]) continue;  // all of these keys are in the future
        merge(seen[i],
              attend(q.subspan(i * piece, piece), keys.subspan(j * piece, piece),
                     values.subspan(j * piece, piece), own[i] * tokens, theirs[j] * tokens));
      }
    if (exchange) exchange->wait();
    std::swap(here, arriving);
  }

  std::vector<float> y;
  for (const Partial& each : seen)
    for (std::size_t c = 0; c < piece; ++c) y.push_back(each.sum[c] / each.total[c / width]);
  return y;
}

}  // namespace ringside::context
