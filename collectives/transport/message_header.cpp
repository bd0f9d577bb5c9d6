#include "collectives/transport/message_header.hpp"

#include <bit>

#include "collectives/call_mismatch.hpp"
#include "collectives/rank_names.hpp"
#include "collectives/transport/unexpected_message.hpp"

namespace ringside::collectives {

static_assert(std::endian::native == std::endian::little,
              "the wire format is little-endian, and so must the machine be");

// What is wrong with a message of blocks of unequal size, whose call has the count of the blocks
// that it carries; empty if it is of another call or step, or nothing is.
static std::string block_difference(const MessageHeader& expected, const MessageHeader& seen,
                                    int self, int peer, const RankNames& names) {
  Call theirs = seen.call;
  theirs.count = expected.call.count;
  if (!theirs.unequal || theirs != expected.call || seen.step != expected.step ||
      seen.call.count == expected.call.count)
    return "";
  theirs.count = 0;
  return fmt::format(
      "rank {} expects a block of {} elements from rank {} in call #{}, {}, but rank {} sends {}: "
      "both ranks must give the same count for a block",
      names(self), expected.call.count, names(peer), seen.sequence, describe(theirs, names),
      names(peer), seen.call.count);
}

std::string UnexpectedMessage::difference(const MessageHeader& expected, const MessageHeader& seen,
                                          int self, int peer, const RankNames& names) {
  if (seen.magic != expected.magic || seen.job != expected.job)
    return fmt::format(
        "rank {} received bytes from rank {} that are not a message of this job: do two jobs "
        "share a port, or do the ranks run different versions?",
        names(self), names(peer));
  if (seen.sequence == expected.sequence)
    if (const auto text = block_difference(expected, seen, self, peer, names); !text.empty())
      return text;
  if (seen.sequence != expected.sequence || seen.call != expected.call)
    return describe_mismatch(self, expected.sequence, expected.call, peer, seen.sequence, seen.call,
                             names);

  const bool sliced_here = expected.slice != MessageHeader::not_sliced;
  const bool sliced_there = seen.slice != MessageHeader::not_sliced;
  if (sliced_here != sliced_there)
    return fmt::format(
        "rank {} runs the {} executor, but rank {} runs the {} one: set RINGSIDE_EXECUTOR to the "
        "same value on every rank",
        names(self), sliced_here ? "pipelined" : "simple", names(peer),
        sliced_there ? "pipelined" : "simple");
  return fmt::format(
      "rank {} expected step {} slice {} ({} bytes) of call #{}, {}, from rank {}, but received "
      "step {} slice {} ({} bytes): do the ranks run different versions or settings "
      "(RINGSIDE_SLICE_BYTES)?",
      names(self), expected.step, expected.slice, expected.bytes, expected.sequence,
      describe(expected.call, names), names(peer), seen.step, seen.slice, seen.bytes);
}

void check_message(const MessageHeader& expected, const MessageHeader& seen, int self, int peer) {
  if (seen != expected) throw UnexpectedMessage(expected, seen, self, peer);
}

}  // namespace ringside::collectives
