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

// A token in the list of those that are left of the word. One that was merged into its neighbour on
// the left is -1.
struct Link {
  std::int32_t token;
  std::int32_t previous, next;  // -1: none
};

// A pair that could be merged when it was put into the queue.
struct Candidate {
  std::uint32_t rank;
  std::int32_t place;  // of its left token
  std::int32_t merged;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : place > other.place;
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

// A list in which tokens merge, and a queue of the pairs that can. What a merge makes out of date
// stays in the queue and is passed over.
void Merges::apply(std::vector<std::int32_t>& tokens) const {
  require(tokens.size() < std::numeric_limits<std::int32_t>::max(),
          "a word of {} bytes is too long to be encoded", tokens.size());
  const auto size = static_cast<std::int32_t>(tokens.size());
  std::vector<Link> links;
  for (std::int32_t i = 0; i < size; ++i)
    links.push_back({tokens[i], i - 1, i + 1 < size ? i + 1 : -1});

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::int32_t place) {
    if (place < 0 || links[place].next < 0) return;
    const Merge* merge = find(links[place].token, links[links[place].next].token);
    if (merge != nullptr) queue.push({merge->rank, place, merge->merged});
  };
  for (std::int32_t i = 0; i + 1 < size; ++i) consider(i);

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Link& left = links[best.place];
    if (left.token < 0 || left.next < 0) continue;
    Link& right = links[left.next];
    const Merge* merge = find(left.token, right.token);
    if (merge == nullptr || merge->merged != best.merged) continue;
    left.token = best.merged;
    right.token = -1;
    left.next = right.next;
    if (left.next >= 0) links[left.next].previous = best.place;
    consider(left.previous);
    consider(best.place);
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
