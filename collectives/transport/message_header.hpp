// What precedes the bytes of a message: which call, step and slice they belong to.
//
// Every message carries the whole call. So two ranks that disagree find out with their first
// message, without an extra round trip. In a ring this covers all ranks: if every two neighbours
// agree, all agree.
#pragma once

#include <cstdint>

#include "collectives/call.hpp"

namespace ringside::collectives {

struct MessageHeader {
  static constexpr std::uint32_t expected_magic = 0x53474e52;  // "RNGS" in memory
  static constexpr std::uint32_t not_sliced = 0xffffffff;      // the slice of a simple executor
  static constexpr std::uint32_t to_everybody = 0xfffffffe;    // of an announcement: all read it
  static constexpr std::uint32_t to_each = 0xfffffffd;         // the same: each rank reads its part

  std::uint32_t magic = expected_magic;
  std::uint32_t job = 0;       // a hash of the job key: messages of another job are refused
  std::uint64_t sequence = 0;  // the number of the call in its group, from 1; a point_to_point
                               // counts the messages from that rank to the other
  Call call;               // its count is that of this message where the blocks are of unequal size
  std::uint32_t step = 0;  // of an announcement: which part of the buffer it is
  std::uint32_t slice = 0;
  std::uint64_t bytes = 0;  // of the payload that follows
  bool announced() const { return slice == to_everybody || slice == to_each; }
  bool operator==(const MessageHeader&) const = default;
};
static_assert(sizeof(MessageHeader) == 96, "the layout is the wire format");

// Throws UnexpectedMessage (unexpected_message.hpp) unless the header `seen` from rank `peer` is
// the one that rank `self` expects.
void check_message(const MessageHeader& expected, const MessageHeader& seen, int self, int peer);

}  // namespace ringside::collectives
