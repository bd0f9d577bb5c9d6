#include "collectives/call_mismatch.hpp"
#include "collectives/rank_names.hpp"

namespace ringside::collectives {

std::string describe_mismatch(int self, std::uint64_t our_sequence, const Call& ours, int peer,
                              std::uint64_t their_sequence, const Call& theirs,
                              const RankNames& names) {
  return fmt::format(
      "the ranks disagree: rank {} makes call #{}, {}, but rank {} makes call #{}, {}. Every rank "
      "must make the same calls in the same order",
      names(self), our_sequence, describe(ours, names), names(peer), their_sequence,
      describe(theirs, names));
}

bool numbered_alike(const Call& a, const Call& b) {
  if (a.collective != Collective::point_to_point && b.collective != Collective::point_to_point)
    return true;
  return a.collective == b.collective && a.root == b.root && a.peer == b.peer;
}

void check_call(std::uint64_t sequence, const Call& ours, const Call& theirs, int self, int peer,
                const RankNames& names) {
  if (ours != theirs)
    throw Error(describe_mismatch(self, sequence, ours, peer, sequence, theirs, names));
}

}  // namespace ringside::collectives
