// Ranks as processes of one host that share memory: the CPU's counterpart of CUDA IPC.
//
// Every rank has a segment. It holds one channel from each other rank: a few slots, which that rank
// fills and this rank empties by the steps of one_sided/protocol.hpp. The sender copies a header
// and a payload into a slot; the receiver's executor reads the payload in place, then frees the
// slot. A payload longer than a slot travels in pieces. No system call is made while messages flow.
//
//     segment of rank 2:  [ doorbell | left ]  [ channel from 0: flags, slot, slot, ... ]
//                         [ announcements   ]  [ channel from 1: flags, slot, slot, ... ]
//                                              [ channel from 3: flags, slot, slot, ... ]
//
// A few bytes for all other ranks do not go through channels (announcement.hpp).
//
// A rank that waits polls for some 50 microseconds and yields its core between two polls. Then it
// sleeps on its doorbell, and the peer that brings the awaited message wakes it. Before a rank
// leaves it sets `left` in its segment and wakes all others. A rank that dies cannot do that: its
// peers learn it from the control channel (diagnostics/control_channel.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/transport/shm/shared_segment.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

// The same on all ranks. A segment has about (size-1) * slots * (slot_bytes + 128) bytes; where
// that would be more than `segment_bytes`, there are only 2 slots (from 18 ranks on), and then
// shorter ones (from 34 ranks on). All of a segment is reserved at the start, so 64 ranks take half
// a gigabyte.
struct ShmOptions {
  std::uint32_t slot_bytes = 128 * 1024;
  std::uint32_t slots = 4;  // per channel, a power of two
  std::uint64_t segment_bytes = 8u << 20;
};

// The slots of a channel, the same on all ranks.
struct ShmLayout {
  std::uint32_t slot_bytes;  // of payload, a multiple of 128
  std::uint32_t slots;
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
