// Byte-pair encoding of one word: which neighbours become one token, and in which order.
//
// The vocabulary was learnt as a list of merges, the most frequent first (Sennrich, Haddow, Birch,
// 2016, section 3.2). To encode a word is to do to it what was done then: always the merge that was
// learnt earliest, the leftmost of equals.
//
//     merges 0: e r   1: er ␣   2: l o   3: lo w        l o w e r    ->   l o w er   ->   lo w er   ->   low er
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ringside::transformer {

class Merges {
 public:
  // From now on `left` followed by `right` becomes `merged`, after all that were added before. A
  // pair that is added again takes the later place.
  void add(std::int32_t left, std::int32_t right, std::int32_t merged);

  // Merges `tokens`, which are the bytes of one word, as far as it goes. O(n log n) for n bytes, so
  // that nobody can stop a program with one long word. Throws Error if there are more than 2^31.
  void apply(std::vector<std::int32_t>& tokens) const;

  // All pairs in their order.
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
