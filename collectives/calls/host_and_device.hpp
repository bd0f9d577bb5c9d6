// A backend for two kinds of memory: the host's and a device's.
//
// Training on a GPU reduces gradients on the device, and numbers on the host, such as a loss. Both
// go through one ProcessGroup. The address of the buffer decides which of two backends carries out
// the call. (torch.distributed calls this "cpu:gloo,cuda:nccl".)
//
//     call -- whose memory? --+-- host:    schedules over shm or tcp
//                             +-- device:  cuda_ipc or nccl
//
// All ranks must pass memory of the same kind. Barriers and calls without elements go to the host's
// backend. When one of the two backends fails, both are aborted.
#pragma once

#include <memory>

#include "collectives/device_calls.hpp"
#include "collectives/execution/backend.hpp"

namespace ringside::collectives {

// Both backends must have the same rank and size; otherwise it throws Error and takes neither.
// Traffic is the sum of both. Sub-groups are made of the host's backend alone:
// ProcessGroup::split() adds a device's backend to each.
std::unique_ptr<Backend> make_host_and_device_backend(std::unique_ptr<Backend>&& host,
                                                      std::unique_ptr<Backend>&& device,
                                                      IsDeviceMemory is_device_memory);

}  // namespace ringside::collectives
