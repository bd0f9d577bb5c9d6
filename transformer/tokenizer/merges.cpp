#include "transformer/tokenizer/merges.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>

#include "base/error.hpp"

namespace ringside::transformer {
namespace {

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// An element of the linked list of a word's tokens.
struct Link {
  std::int32_t token;           // -1: was merged into its left neighbour
  std::int32_t previous, next;  // -1: none
};

// A pair that could be merged when it entered the queue.
struct NextMerge {
  std::uint32_t rank;
  std::int32_t position;  // of its left token
  std::int32_t merged;
  bool operator>(const NextMerge& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

void Merges::add(std::int32_t left, std::int32_t right, std::int32_t merged) {
  of_pair_[key_of(left, right)] = {next_rank_++, merged};
}

const Merges::Merge* Merges::find(std::int32_t left, std::int32_t right) const {
  const auto found = of_pair_.find(key_of(left, right));
  return found == of_pair_.end() ? nullptr : &found->second;
}

// Keeps the tokens in a linked list, and the pairs that can merge in a priority queue. A merge can
// make queued pairs obsolete. They stay in the queue and are skipped later.
void Merges::apply(std::vector<std::int32_t>& tokens) const {
  require(tokens.size() < std::numeric_limits<std::int32_t>::max(),
          "a word of {} bytes is too long to be encoded", tokens.size());
  const auto size = static_cast<std::int32_t>(tokens.size());
  std::vector<Link> links;
  for (std::int32_t i = 0; i < size; ++i)
    links.push_back({tokens[i], i - 1, i + 1 < size ? i + 1 : -1});

  std::priority_queue<NextMerge, std::vector<NextMerge>, std::greater<>> queue;
  const auto consider = [&](std::int32_t position) {
    if (position < 0 || links[position].next < 0) return;
    const Merge* merge = find(links[position].token, links[links[position].next].token);
    if (merge != nullptr) queue.push({merge->rank, position, merge->merged});
  };
  for (std::int32_t i = 0; i + 1 < size; ++i) consider(i);

  while (!queue.empty()) {
    const NextMerge best = queue.top();
    queue.pop();
    Link& left = links[best.position];
    if (left.token < 0 || left.next < 0) continue;
    Link& right = links[left.next];
    const Merge* merge = find(left.token, right.token);
    if (merge == nullptr || merge->merged != best.merged) continue;
    left.token = best.merged;
    right.token = -1;
    left.next = right.next;
    if (left.next >= 0) links[left.next].previous = best.position;
    consider(left.previous);
    consider(best.position);
  }

  tokens.clear();
  for (std::int32_t i = size > 0 ? 0 : -1; i >= 0; i = links[i].next)
    tokens.push_back(links[i].token);
}

std::vector<std::pair<std::int32_t, std::int32_t>> Merges::in_order() const {
  std::vector<std::pair<std::uint32_t, std::uint64_t>> ranked;
  for (const auto& [key, merge] : of_pair_) ranked.emplace_back(merge.rank, key);
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
  for (const auto& [rank, key] : ranked)
    pairs.emplace_back(static_cast<std::int32_t>(key >> 32),
                       static_cast<std::int32_t>(key & 0xffffffff));
  return pairs;
}

}  // namespace ringside::transformer
