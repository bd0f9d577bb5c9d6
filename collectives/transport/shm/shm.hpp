// Ranks as processes of one host that share memory: the CPU twin of CUDA IPC.
//
// Every rank has a segment, and in it a lane from each other rank: a few slots, filled and emptied
// by the steps of one_sided.hpp. A message is a header and its payload, copied into a slot once by
// the sender; the receiver's executor reads it where it lies and then frees the slot. Payloads that
// are longer than a slot travel in pieces. No system call is made while messages flow.
//
//     segment of rank 2:  [ bell | gave up ]  [ lane from 0: flags, slot, slot, ... ]  [ lane from 1: ... ]  [ lane from 3: ... ]
//
// A rank that waits looks for some 50 microseconds, each time offering its core to whoever wants
// it; then it sleeps on its bell, and the neighbour that brings the awaited message wakes it. It
// never spins: with more ranks than cores that would keep from its core the very peer that it waits
// for. Whether somebody has died it learns from the lifelines (lifeline.hpp), to which it listens
// each time it has slept for 50 ms: twenty times a second costs nothing, and every survivor names
// the dead within a second. Who gives up raises a word in everybody's segment and wakes them, so
// that news of that kind do not wait for the 50 ms.
#pragma once

#include <cstdint>
#include <memory>

#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/bootstrap/sub_group_connector.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

// Alike on all ranks. A rank's segment has (size-1) * slots * (slot_bytes + 128) bytes and a few;
// where that would be more than `segment_bytes`, slots become shorter.
struct ShmOptions {
  std::uint32_t slot_bytes = 128 * 1024;
  std::uint32_t slots = 4;  // per lane, a power of two
  std::uint64_t segment_bytes = 32u << 20;
};

// Finds the other ranks of the job (rendezvous.hpp) and shares memory with all of them. Errors:
// those of meet() and shm_meeting.hpp.
std::unique_ptr<Transport> connect_shm(const RankInfo& rank_info, const ShmOptions& options = {});

// The same for ranks that have met. Takes the mesh's connections, unless it throws CannotShare
// (shm_meeting.hpp). Sub-groups are made by `again`.
std::unique_ptr<Transport> make_shm(const RankInfo& rank_info, Mesh& mesh,
                                    const ShmOptions& options, MakeTransport again);

}  // namespace ringside::collectives
