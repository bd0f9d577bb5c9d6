// Finds out whether two ranks make the same call, and says it in a sentence where they do not.
#pragma once

#include "base/error.hpp"
#include "collectives/call.hpp"
#include "collectives/rank_names.hpp"

namespace ringside::collectives {

// Whether equal numbers mean the same call: all ranks count their collectives together, but each
// pair of ranks counts its sends on its own.
bool numbered_alike(const Call& a, const Call& b);

// "the ranks disagree: ...", with both calls and what to do.
std::string describe_mismatch(int self, std::uint64_t our_sequence, const Call& ours, int peer,
                              std::uint64_t their_sequence, const Call& theirs,
                              const RankNames& names);

// Throws Error, with both calls in its text, unless rank `self` and rank `peer` make the same call
// number `sequence`.
void check_call(std::uint64_t sequence, const Call& ours, const Call& theirs, int self, int peer,
                const RankNames& names = {});

}  // namespace ringside::collectives
