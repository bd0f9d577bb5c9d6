// Storage: the buffer that tensors are views of, and the ledger of the memory that buffers hold.
//
// Only this file and device_memory.hpp allocate memory of a device; a Tensor uses the address.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "autograd/tensor/device.hpp"
#include "base/scoped_value.hpp"

namespace ringside::autograd {

struct MemoryCounter;
class BufferCache;

// What a buffer is used for; the ledger (memory_use) counts each kind.
enum class MemoryKind { parameters, gradients, optimizer_state, activations, communication };
inline constexpr std::array all_memory_kinds{MemoryKind::parameters, MemoryKind::gradients,
                                             MemoryKind::optimizer_state, MemoryKind::activations,
                                             MemoryKind::communication};
const char* name_of(MemoryKind kind);  // "optimizer state"

// While it lives, this thread allocates buffers of this kind. Without a MemoryScope the kind is
// activations.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryKind kind);

 private:
  ScopedValue<MemoryKind> here_;
};

class Storage {
 public:
  // A buffer of `bytes`, aligned to 64 bytes, its contents undefined. Throws Error if the device is
  // out of memory or does not exist.
  static std::shared_ptr<Storage> allocate(std::size_t bytes, Device device = Device::cpu);

  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }  // an address on its device; nullptr while dropped
  Device device() const { return device_; }
  std::size_t bytes() const { return bytes_; }

  // drop() frees the buffer while tensors still use this storage; restore() allocates a new one of
  // the same size, its contents undefined. So a parameter that is sharded over ranks (ZeRO stage 3,
  // FSDP) takes memory only while its layer runs. In between, reading a tensor of this storage
  // throws. A second drop() or restore() does nothing.
  void drop();
  void restore();

  // Counts the buffer as another kind, for instance when the result of an op becomes the gradient
  // of a parameter.
  void set_kind(MemoryKind kind);

 private:
  Storage() = default;

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_ = Device::cpu;
  std::shared_ptr<BufferCache> cache_;      // where the buffer returns
  std::shared_ptr<MemoryCounter> counter_;  // of the thread that allocated
  MemoryKind kind_ = MemoryKind::activations;
};

// Bytes in storages now and at the peak. Only allocations of the calling thread count, so a rank
// that is a thread sees its own. A storage counts until it is destroyed, on any thread.
struct MemoryUse {
  std::int64_t current = 0, peak = 0;
};
MemoryUse memory_use();
MemoryUse memory_use(MemoryKind kind);  // the peaks of the kinds may be at different times
void reset_peak_memory();               // peak = current, for all kinds and their sum

// Returns the cached buffers of this thread to the system. Each thread caches the buffers that it
// has allocated, when they are freed, for its next allocation of the same size: the next training
// step asks for the same sizes, each fresh page costs a page fault, and an allocation by a GPU's
// driver takes longer than most kernels.
void release_cached_memory();

// How many buffers this thread has allocated from the system so far, because its cache had none of
// that size. In a steady state the number stays constant. On the CPU only buffers of 64 KiB and
// more count.
std::int64_t system_allocations();

}  // namespace ringside::autograd
