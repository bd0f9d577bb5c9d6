// The memory of the devices, and pinned memory of the host.
//
//     a slab, one file in memory:   [ head | room for allocations ...            ]
//                                          ^ base, what an IPC handle names
//
// Small allocations share a slab of 2 MiB, a large one has its own. None begins at the base, and no
// address is used twice while its slab lives. A slab goes when its last allocation is freed.
//
// The host must not touch device memory. All threads of a process share its page tables, so the
// memory is out of reach (PROT_NONE) from where the host has waited for the device until the next
// kernel or copy begins: then a mistaken access of the host ends in a sentence. While one runs, it
// goes unnoticed.
#pragma once

#include <cstddef>
#include <string>

#include <cuda_runtime_api.h>

namespace ringside::standin {

// nullptr: the device has not so much memory left.
void* allocate(int device, std::size_t bytes);
// false: not the start of an allocation of this process. The caller waits for the device before.
bool deallocate(void* pointer, int& device);
int device_of_allocation(const void* pointer);  // -1: none starts there
std::size_t used_bytes(int device);

// A kernel, a copy or a product that runs: as long as one does, device memory is within reach.
class Access {
 public:
  Access();
  ~Access();
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
};
// The host has waited: device memory is out of reach, unless there is an Access.
void host_has_waited();

void* allocate_pinned(std::size_t bytes);
bool deallocate_pinned(void* pointer);

// What lies at an address.
struct Place {
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  int device = 0;
  std::size_t bytes_left = 0;  // up to the end of its allocation
  bool of_a_peer = false;      // memory of another process
};
Place place_of(const void* pointer);

// The base of the slab or opened memory, and its size; false if there is none.
bool range_of(const void* pointer, void*& base, std::size_t& bytes);

bool share(const void* pointer, cudaIpcMemHandle_t& handle);
cudaError_t open(const cudaIpcMemHandle_t& handle, void*& base);
bool close(void* base);  // the caller waits for the device before

}  // namespace ringside::standin
