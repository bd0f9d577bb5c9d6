// Ranks as processes of one host that share memory: the CPU's counterpart of CUDA IPC.
//
// Every rank has a segment. It holds one channel from each other rank: a few slots, which that rank
// fills and this rank empties by the steps of one_sided/protocol.hpp. The sender copies a payload
// and its header; the receiver's executor reads the payload in place, then frees the slot. A
// payload longer than a piece travels in pieces. No system call is made while messages flow.
//
//     segment of rank 2:  [ doorbell | left ]  [ channel from 0 ]  [ channel from 1 ]  ...
//                         [ announcements   ]  [ room of long announcements            ]
//
//     a channel:          [ flags ]  [ slot: header | short payload ]  [ slot ]  ...
//                         [ room: long payloads, one after the other, then again from the front ]
//
// A store to a line that the reader's cache still holds takes that line away first, which costs
// more than the copy. So long payloads go round a room that is larger than a cache keeps: an
// all-reduce of 64 KB on two ranks takes 4.8 us, where it took 10.2 with a fixed place for each
// slot (docs/performance.md).
//
// What a rank has for all other ranks at once does not go through channels (announcement.hpp).
//
// A rank that waits polls for some 50 microseconds and yields its core between two polls; where
// ranks take turns on a core, for 200. Then it sleeps on its doorbell, and the peer that brings the
// awaited message wakes it. Before a rank leaves it sets `left` in its segment and wakes all
// others. A rank that dies cannot do that: its peers learn it from the control channel
// (diagnostics/control_channel.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/transport/shm/shared_segment.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

// The same on all ranks. Where the channels of a segment would need more than `segment_bytes`,
// there are only 2 slots (from 18 ranks on), and then shorter pieces (from 34 ranks on). If all
// ranks send to all others, 64 of them take half a gigabyte.
struct ShmOptions {
  std::uint32_t piece_bytes = 128 * 1024;
  std::uint32_t slots = 4;              // per channel, a power of two
  std::uint64_t room_bytes = 2u << 20;  // per channel, if half of segment_bytes is enough for all
  std::uint64_t segment_bytes = 8u << 20;
  std::uint32_t announced_bytes = 10 * 128 * 1024;  // at once; a segment has three times as many
};

// A channel, the same on all ranks.
struct ShmLayout {
  std::uint32_t piece_bytes;  // of payload, at most; a multiple of 128
  std::uint32_t slots;
  std::uint32_t room_bytes;  // a multiple of 128, and slots * piece_bytes at least
  std::uint32_t announced_bytes;
  bool operator==(const ShmLayout&) const = default;
};

// Throws Error unless options.slots is a power of two.
ShmLayout shm_layout(const ShmOptions& options, int size);

// The length of one rank's segment in a world of `size`.
std::size_t shm_segment_bytes(const ShmLayout& layout, int size);

// segments[r] is the segment of rank r, filled with zeros at first. `job` goes into every header.
// `crowded`: the host has more ranks than cores, so a rank that waits yields its core at once.
std::unique_ptr<Transport> make_shm_transport(int rank, std::uint32_t job, const ShmLayout& layout,
                                              std::vector<SharedSegment> segments, bool crowded);

}  // namespace ringside::collectives
