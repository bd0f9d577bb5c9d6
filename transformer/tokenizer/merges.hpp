// Merges: byte-pair encoding of one word.
//
// A vocabulary is learnt as a list of merges, the most frequent first (Sennrich, Haddow, Birch,
// 2016, section 3.2). Encoding a word repeats them: it always applies the merge that was learnt
// first, and of equal ones the leftmost.
//
//     merges    0: e r    1: er ␣    2: l o    3: lo w
//     word      l o w e r  ->  l o w er  ->  lo w er  ->  low er
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ringside::transformer {

class Merges {
 public:
  // Adds the merge of `left` and `right` into `merged`, with a rank after all earlier ones. Adding
  // a pair again moves it to the end.
  void add(std::int32_t left, std::int32_t right, std::int32_t merged);

  // Applies all possible merges to `tokens`, the bytes of one word. Takes O(n log n) for n bytes,
  // so one long word cannot stop the program. Throws Error if there are 2^31 - 1 or more.
  void apply(std::vector<std::int32_t>& tokens) const;

  // All pairs in the order of their ranks.
  std::vector<std::pair<std::int32_t, std::int32_t>> in_order() const;

 private:
  struct Merge {
    std::uint32_t rank;
    std::int32_t merged;
  };
  const Merge* find(std::int32_t left, std::int32_t right) const;

  std::unordered_map<std::uint64_t, Merge> of_pair_;
  std::uint32_t next_rank_ = 0;
};

}  // namespace ringside::transformer
