// Announcements: what a rank shows to all other ranks at once, instead of a message to each.
//
// For a few bytes, a call costs what the cache lines cost that move between cores. A message
// through a channel (shm.hpp) moves four or more: header, payload, the sender's flag, the
// receiver's flag. An announcement of up to 48 bytes moves one, as the flag lies beside the data.
// For many bytes, a call costs copies and turns on a core. A rank copies what is for everybody
// once, not for each other rank, and waits once for all of them.
//
//     segment of rank 2:    [ announcement 0 ]  [ announcement 1 ]
//
//     an announcement:      | number | fingerprint | payload: 48 bytes |     one line of 64 bytes
//                           | the rest of the payload ...              |
//                           | header                                   |     to name a mismatch
//
// A payload that is longer, or that has a part for each rank, lies in the room of its rank's
// segment (shm.hpp). All ranks announce alike, so it lies at the same place in all segments.
//
// In round n every rank writes its payload and its fingerprint into
// its own announcement n mod 2, and then stores the number n with release. A rank that loads n with
// acquire sees all that was written before. Every rank reads all others before it goes on:
//
//     rank 0    write 7   read 7 of rank 1   write 8   read 8 of rank 1   write 9
//     rank 1    write 7   read 7 of rank 0   write 8   read 8 of rank 0   write 9
//
// Nobody reports that it has read. Round 9 overwrites round 7, and that is safe: rank 0 writes 9
// only after it has read 8 of rank 1, and rank 1 wrote 8 only after it had read 7 of rank 0. So two
// announcements for each rank are enough.
//
// The fingerprint stands for the header, which holds the whole call. Ranks compare fingerprints.
// Only where they differ does the reader look at the other rank's header, to name both calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/one_sided/protocol.hpp"
#include "collectives/transport/message_header.hpp"

namespace ringside::collectives {

// What a rank shows to one other rank, instead of the message of that step of the schedule.
// Transport::announce() copies it, so nothing is under way afterwards; all ranks announce with the
// same header, and receive from all others before they announce again. It has header.bytes bytes at
// most. By the header's slice all payloads are the same, of announced_bytes() at most, or each rank
// has its own, and size() of them are announced_bytes() at most. A rank receives with that header
// and the step in which the two meet. What it receives stays until its next announcement, so no
// release() follows.
struct Shown {
  std::uint32_t step = 0;
  std::span<const std::byte> payload = {};
};

struct alignas(128) Announcement {
  one_sided::Number number = 0;  // of the round; 0 at first, and rounds begin with 1
  std::uint64_t fingerprint = 0;
  std::byte payload[8192] = {};  // a quarter of a first-level cache; a longer one lies in the room
  MessageHeader header;
};
static_assert(offsetof(Announcement, payload) == 16, "48 bytes of payload share the flag's line");

// 64 bits that stand for a header: equal headers have equal fingerprints, and two headers that
// programs make by mistake differ in theirs.
std::uint64_t fingerprint_of(const MessageHeader& header);

}  // namespace ringside::collectives
