// Storage: the buffer that tensors look into, and the count of how much memory such buffers hold.
//
// Where memory lives is known here and in device_memory.hpp alone; a Tensor only ever asks for the
// address.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "autograd/tensor/device.hpp"

namespace ringside::autograd {

struct MemoryCounter;
class DeviceCache;

// What a buffer is for: the columns of the ledger (memory_use).
enum class MemoryKind { parameters, gradients, optimizer_state, activations, communication };
inline constexpr std::array all_memory_kinds{MemoryKind::parameters, MemoryKind::gradients,
                                             MemoryKind::optimizer_state, MemoryKind::activations,
                                             MemoryKind::communication};
const char* name_of(MemoryKind kind);  // "optimizer state"

// While it lives, what this thread allocates is of this kind. Where there is none, it is
// activations.
class MemoryScope {
 public:
  explicit MemoryScope(MemoryKind kind);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  MemoryKind before_;
};

class Storage {
 public:
  // A buffer of `bytes`, aligned to 64, its contents undefined. Throws Error if there is no such
  // memory, or no such device.
  static std::shared_ptr<Storage> allocate(std::size_t bytes, Device device = Device::cpu);

  // A window on memory of someone else (a shared segment, a file mapping), kept alive by `owner`.
  // It is not counted in memory_use().
  static std::shared_ptr<Storage> borrow(void* data, std::size_t bytes, std::shared_ptr<void> owner,
                                         Device device = Device::cpu);

  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }  // an address on its device; nullptr while dropped
  Device device() const { return device_; }
  std::size_t bytes() const { return bytes_; }

  // Gives the buffer back while tensors still look into it, and fetches a new one of the same size,
  // its contents undefined: how a parameter sharded over ranks (ZeRO stage 3, FSDP) exists only
  // while its layer runs. Between the two, reading a tensor of this storage throws. Both do nothing
  // if there is nothing to do; both throw Error on borrowed memory.
  void drop();
  void restore();

  // Books the buffer under another kind, as when a gradient that an op computed becomes the
  // parameter's own. Borrowed memory is in no book, and stays so.
  void set_kind(MemoryKind kind);

 private:
  Storage() = default;

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Device device_ = Device::cpu;
  std::shared_ptr<DeviceCache> cache_;      // where a device's buffer came from and goes back to
  std::shared_ptr<MemoryCounter> counter_;  // of the thread that allocated; none if borrowed
  MemoryKind kind_ = MemoryKind::activations;
  std::shared_ptr<void> owner_;  // of borrowed memory
};

// Bytes that live storages hold and the most they ever held, counted for the calling thread's
// allocations alone: a rank that is a thread sees its own. Storages count until they are destroyed,
// on whatever thread that happens.
struct MemoryUse {
  std::int64_t current = 0, peak = 0;
};
MemoryUse memory_use();
MemoryUse memory_use(MemoryKind kind);  // of one kind; the kinds' peaks need not be at one moment
void reset_peak_memory();               // peak := current, of all

// Freed buffers of a thread are kept for its next allocation of the same size (the next training
// step asks for exactly the same ones, and fresh pages cost a fault each; asking a GPU's driver for
// memory takes longer than most kernels). This gives them back to the system.
void release_cached_memory();

// How many buffers this thread has asked the system for so far, because it had none of that size
// left: in a steady state no more. On the CPU those of 64 KiB and more are counted.
std::int64_t system_allocations();

}  // namespace ringside::autograd
