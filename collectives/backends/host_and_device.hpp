// A backend for ranks that have memory of two kinds: the host's, and a device's.
//
// Training on a GPU reduces gradients that lie on the device, and numbers that lie on the host (a
// loss, the norm of a shard). Whoever asks for either holds one ProcessGroup; which of two backends
// carries a call out is seen from where its memory lies. (torch.distributed says
// "cpu:gloo,cuda:nccl".)
//
//     call ── whose memory? ──┬── host:    schedules over shm, tcp
//                             └── device:  cuda_ipc, nccl
//
// All ranks must give memory of the same kind, as they must make the same call; a call without
// elements, and a barrier, is the host's. When one of the two fails, both do.
#pragma once

#include <functional>
#include <memory>

#include "collectives/execution/backend.hpp"

namespace ringside::collectives {

// Whether an address, not null, is the device's.
using IsDeviceMemory = std::function<bool(const void*)>;

// Both must be of the same rank and size; throws Error otherwise, and takes neither. Traffic is
// both together; there are no sub-groups.
std::unique_ptr<Backend> make_two_memory_backend(std::unique_ptr<Backend>&& host,
                                                 std::unique_ptr<Backend>&& device,
                                                 IsDeviceMemory is_device_memory);

}  // namespace ringside::collectives
