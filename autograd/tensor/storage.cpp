#include "autograd/tensor/storage.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/tensor/device_memory.hpp"
#include "base/error.hpp"

namespace ringside::autograd {

// One line of the ledger. Atomic, because a storage may be destroyed on another thread than the one
// that allocated it.
struct MemoryLine {
  std::atomic<std::int64_t> current{0}, peak{0};

  void add(std::int64_t bytes) {
    const std::int64_t now = current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::int64_t seen = peak.load(std::memory_order_relaxed);
    while (seen < now && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }
  MemoryUse use() const {
    return {current.load(std::memory_order_relaxed), peak.load(std::memory_order_relaxed)};
  }
  void reset_peak() {
    peak.store(current.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
};

struct MemoryCounter {
  MemoryLine all;
  std::array<MemoryLine, all_memory_kinds.size()> of_kind;

  MemoryLine& line(MemoryKind kind) { return of_kind[static_cast<std::size_t>(kind)]; }
  void add(MemoryKind kind, std::int64_t bytes) {
    all.add(bytes);
    line(kind).add(bytes);
  }
};

namespace {

thread_local MemoryKind kind_here = MemoryKind::activations;
thread_local std::int64_t fetched_from_system = 0;

std::shared_ptr<MemoryCounter>& counter_of_thread() {
  thread_local auto counter = std::make_shared<MemoryCounter>();
  return counter;
}

}  // namespace

// The freed buffers of one thread on one device, by size. A training step allocates the same sizes
// as the step before. On the CPU reuse avoids the page faults of fresh memory, which cost as much
// as a pass over it.
//
// A buffer returns to the cache that it came from, on whatever thread it is freed: kernels that
// still read it are in the stream of the cache's thread, and so are the kernels that will write it
// next. Storages keep the cache alive after its thread has ended.
class BufferCache {
 public:
  explicit BufferCache(Device device)
      : memory_(device == Device::cpu ? nullptr : &device_memory(device)) {}
  ~BufferCache() { clear(); }
  BufferCache(const BufferCache&) = delete;
  BufferCache& operator=(const BufferCache&) = delete;

  // nullptr if the device is out of memory, even after the cache is cleared.
  std::byte* take(std::size_t bytes) {
    const std::size_t size = buffer_size(bytes);
    if (!keeps(size)) return allocate(size);
    {
      const std::lock_guard lock(mutex_);
      if (std::vector<std::byte*>& buffers = free_[size]; !buffers.empty()) {
        std::byte* const buffer = buffers.back();
        buffers.pop_back();
        return buffer;
      }
    }
    ++fetched_from_system;
    std::byte* const buffer = allocate(size);
    if (buffer) return buffer;
    clear();
    return allocate(size);
  }

  void give(std::byte* buffer, std::size_t bytes) {
    const std::size_t size = buffer_size(bytes);
    if (!keeps(size)) return free(buffer);
    const std::lock_guard lock(mutex_);
    if (thread_has_ended_) return free(buffer);
    free_[size].push_back(buffer);
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    for (auto& [size, buffers] : free_)
      for (std::byte* buffer : buffers) free(buffer);
    free_.clear();
  }

  // From now on buffers are freed at once: nobody will take them any more.
  void end_of_thread() {
    {
      const std::lock_guard lock(mutex_);
      thread_has_ended_ = true;
    }
    clear();
  }

 private:
  static constexpr std::size_t alignment = 64;  // a cache line, and the widest vector register

  // On the CPU malloc caches smaller buffers itself.
  bool keeps(std::size_t size) const { return memory_ || size >= 64 << 10; }

  std::size_t buffer_size(std::size_t bytes) const {
    if (memory_) return memory_->buffer_size(bytes);
    return (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  }
  std::byte* allocate(std::size_t size) const {
    return static_cast<std::byte*>(memory_ ? memory_->allocate(size)
                                           : std::aligned_alloc(alignment, size));
  }
  void free(std::byte* buffer) const { memory_ ? memory_->free(buffer) : std::free(buffer); }

  DeviceMemory* memory_;  // nullptr: the heap of the CPU
  std::mutex mutex_;
  bool thread_has_ended_ = false;
  std::unordered_map<std::size_t, std::vector<std::byte*>> free_;
};

namespace {

struct CachesOfThread {
  std::array<std::shared_ptr<BufferCache>, all_devices.size()> caches;

  ~CachesOfThread() {
    for (const auto& cache : caches)
      if (cache) cache->end_of_thread();
  }
  const std::shared_ptr<BufferCache>& on(Device device) {
    std::shared_ptr<BufferCache>& cache = caches[static_cast<std::size_t>(device)];
    if (!cache) cache = std::make_shared<BufferCache>(device);
    return cache;
  }
};

thread_local CachesOfThread caches_here;

}  // namespace

std::shared_ptr<Storage> Storage::allocate(std::size_t bytes, Device device) {
  std::shared_ptr<Storage> storage(new Storage);
  storage->bytes_ = bytes;
  storage->device_ = device;
  storage->cache_ = caches_here.on(device);
  storage->counter_ = counter_of_thread();
  storage->kind_ = kind_here;
  storage->restore();
  return storage;
}

Storage::~Storage() {
  drop();
}

void Storage::drop() {
  if (!data_) return;
  cache_->give(std::exchange(data_, nullptr), bytes_);
  counter_->add(kind_, -static_cast<std::int64_t>(bytes_));
}

void Storage::restore() {
  if (data_) return;
  data_ = cache_->take(bytes_);
  const bool on_cpu = device_ == Device::cpu;
  if (!data_)
    fail("out of memory{}{}: cannot allocate a tensor of {} bytes; this rank uses {} bytes",
         on_cpu ? "" : " on ", on_cpu ? "" : name_of(device_), bytes_, memory_use().current);
  counter_->add(kind_, static_cast<std::int64_t>(bytes_));
}

void Storage::set_kind(MemoryKind kind) {
  if (data_) {
    counter_->line(kind_).add(-static_cast<std::int64_t>(bytes_));
    counter_->line(kind).add(static_cast<std::int64_t>(bytes_));
  }
  kind_ = kind;
}

const char* name_of(MemoryKind kind) {
  constexpr std::array<const char*, all_memory_kinds.size()> names{
      "parameters", "gradients", "optimizer state", "activations", "communication"};
  return names.at(static_cast<std::size_t>(kind));
}

MemoryScope::MemoryScope(MemoryKind kind) : here_(kind_here, kind) {}

MemoryUse memory_use() {
  return counter_of_thread()->all.use();
}

MemoryUse memory_use(MemoryKind kind) {
  return counter_of_thread()->line(kind).use();
}

void reset_peak_memory() {
  MemoryCounter& counter = *counter_of_thread();
  counter.all.reset_peak();
  for (MemoryLine& line : counter.of_kind) line.reset_peak();
}

void release_cached_memory() {
  for (const auto& cache : caches_here.caches)
    if (cache) cache->clear();
}

std::int64_t system_allocations() {
  return fetched_from_system;
}

}  // namespace ringside::autograd
