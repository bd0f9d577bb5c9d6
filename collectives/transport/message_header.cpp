#include "collectives/transport/message_header.hpp"

#include <bit>

#include "collectives/call_mismatch.hpp"

namespace ringside::collectives {

static_assert(std::endian::native == std::endian::little,
              "the wire format is little-endian, and so must the machine be");

// Messages of blocks of unequal size: the count of their call is that of the blocks they carry.
static void check_block(const MessageHeader& expected, const MessageHeader& seen, int self,
                        int peer) {
  Call theirs = seen.call;
  theirs.count = expected.call.count;
  if (theirs != expected.call || seen.step != expected.step) return;  // not the same message
  theirs.count = 0;
  require(seen.call.count == expected.call.count,
          "rank {} expects a block of {} elements from rank {} in call #{}, {}, but rank {} sends "
          "{}: both ranks must give the same count for a block",
          self, expected.call.count, peer, seen.sequence, describe(theirs), peer, seen.call.count);
}

void check_message(const MessageHeader& expected, const MessageHeader& seen, int self, int peer) {
  if (seen == expected) return;
  require(seen.magic == expected.magic && seen.job == expected.job,
          "rank {} received bytes from rank {} that are not a message of this job: do two jobs "
          "share a port, or do the ranks run different versions?",
          self, peer);
  if (seen.sequence != expected.sequence)
    throw OutOfStep(
        describe_mismatch(self, expected.sequence, expected.call, peer, seen.sequence, seen.call));
  if (seen.call.unequal) check_block(expected, seen, self, peer);
  check_call(seen.sequence, expected.call, seen.call, self, peer);

  const bool sliced_here = expected.slice != MessageHeader::not_sliced;
  const bool sliced_there = seen.slice != MessageHeader::not_sliced;
  require(sliced_here == sliced_there,
          "rank {} runs the {} executor, but rank {} runs the {} one: set RINGSIDE_EXECUTOR to the "
          "same value on every rank",
          self, sliced_here ? "pipelined" : "simple", peer, sliced_there ? "pipelined" : "simple");
  fail(
      "rank {} expected step {} slice {} ({} bytes) of call #{}, {}, from rank {}, but received "
      "step {} slice {} ({} bytes): do the ranks run different versions or settings "
      "(RINGSIDE_SLICE_BYTES)?",
      self, expected.step, expected.slice, expected.bytes, expected.sequence,
      describe(expected.call), peer, seen.step, seen.slice, seen.bytes);
}

}  // namespace ringside::collectives
