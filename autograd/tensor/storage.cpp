#include "autograd/tensor/storage.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
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

// The freed buffers of one thread on one device, by size. A buffer returns to the cache that it
// came from, on whatever thread it is freed: kernels that still read it are in the stream of the
// cache's thread, and so are the kernels that will write it next.
class DeviceCache {
 public:
  explicit DeviceCache(Device device) : memory_(device_memory(device)) {}
  ~DeviceCache() { clear(); }
  DeviceCache(const DeviceCache&) = delete;
  DeviceCache& operator=(const DeviceCache&) = delete;

  // The cache of the calling thread. Storages keep it alive after the thread has ended.
  static const std::shared_ptr<DeviceCache>& of_thread(Device device) {
    std::shared_ptr<DeviceCache>& cache = caches_[static_cast<std::size_t>(device)];
    if (!cache) cache = std::make_shared<DeviceCache>(device);
    return cache;
  }
  static void clear_of_thread() {
    for (const auto& cache : caches_)
      if (cache) cache->clear();
  }

  // nullptr if the device is out of memory, even after the cache is cleared. `fetched` counts the
  // allocations from the device.
  void* take(std::size_t bytes, std::int64_t& fetched) {
    const std::size_t size = memory_.buffer_size(bytes);
    {
      const std::lock_guard lock(mutex_);
      if (std::vector<void*>& buffers = free_[size]; !buffers.empty()) {
        void* const buffer = buffers.back();
        buffers.pop_back();
        return buffer;
      }
    }
    ++fetched;
    void* const buffer = memory_.allocate(size);
    if (buffer) return buffer;
    clear();
    return memory_.allocate(size);
  }

  void give(void* buffer, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    free_[memory_.buffer_size(bytes)].push_back(buffer);
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    for (auto& [size, buffers] : free_)
      for (void* buffer : buffers) memory_.free(buffer);
    free_.clear();
  }

 private:
  static thread_local std::array<std::shared_ptr<DeviceCache>, all_devices.size()> caches_;
  DeviceMemory& memory_;
  std::mutex mutex_;
  std::unordered_map<std::size_t, std::vector<void*>> free_;
};

thread_local std::array<std::shared_ptr<DeviceCache>, all_devices.size()> DeviceCache::caches_;

namespace {

thread_local MemoryKind kind_here = MemoryKind::activations;

constexpr std::size_t alignment = 64;  // a cache line, and the widest vector register

std::shared_ptr<MemoryCounter>& counter_of_thread() {
  thread_local auto counter = std::make_shared<MemoryCounter>();
  return counter;
}

std::size_t aligned_size(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
}

// The freed CPU buffers of this thread, by size. A training step allocates the same sizes as the
// step before. Reuse avoids the page faults of fresh memory, which cost as much as a pass over it.
class Cache {
 public:
  static constexpr std::size_t smallest = 64 << 10;  // malloc caches smaller buffers itself

  ~Cache() {
    ended_ = true;
    clear();
  }

  // The cache of this thread; nullptr after it is destroyed at the end of the thread.
  static Cache* of_thread() {
    if (ended_) return nullptr;
    thread_local Cache cache;
    return &cache;
  }

  void* take(std::size_t bytes) {
    const auto found = free_.find(bytes);
    if (found == free_.end() || found->second.empty()) return nullptr;
    void* const buffer = found->second.back();
    found->second.pop_back();
    return buffer;
  }

  void give(void* buffer, std::size_t bytes) { free_[bytes].push_back(buffer); }

  void clear() {
    for (auto& [bytes, buffers] : free_)
      for (void* buffer : buffers) std::free(buffer);
    free_.clear();
  }

 private:
  static thread_local bool ended_;
  std::unordered_map<std::size_t, std::vector<void*>> free_;
};

thread_local bool Cache::ended_ = false;

thread_local std::int64_t fetched_from_system = 0;

std::byte* allocate_buffer(std::size_t bytes) {
  const std::size_t size = aligned_size(bytes);
  Cache* const cache = size < Cache::smallest ? nullptr : Cache::of_thread();
  void* buffer = cache ? cache->take(size) : nullptr;
  if (!buffer && cache) ++fetched_from_system;
  if (!buffer) buffer = std::aligned_alloc(alignment, size);
  if (!buffer && cache) {
    cache->clear();  // frees the cached buffers of other sizes
    buffer = std::aligned_alloc(alignment, size);
  }
  return static_cast<std::byte*>(buffer);
}

void free_buffer(void* buffer, std::size_t bytes) {
  const std::size_t size = aligned_size(bytes);
  if (Cache* const cache = size < Cache::smallest ? nullptr : Cache::of_thread())
    cache->give(buffer, size);
  else
    std::free(buffer);
}

}  // namespace

std::shared_ptr<Storage> Storage::allocate(std::size_t bytes, Device device) {
  std::shared_ptr<Storage> storage(new Storage);
  storage->bytes_ = bytes;
  storage->device_ = device;
  if (device != Device::cpu) storage->cache_ = DeviceCache::of_thread(device);
  storage->counter_ = counter_of_thread();
  storage->kind_ = kind_here;
  storage->restore();
  return storage;
}

std::shared_ptr<Storage> Storage::borrow(void* data, std::size_t bytes, std::shared_ptr<void> owner,
                                         Device device) {
  require(data != nullptr || bytes == 0,
          "Storage::borrow: expected an address for {} bytes, got none", bytes);
  std::shared_ptr<Storage> storage(new Storage);
  storage->data_ = static_cast<std::byte*>(data);
  storage->bytes_ = bytes;
  storage->owner_ = std::move(owner);
  storage->device_ = device;
  return storage;
}

Storage::~Storage() {
  if (counter_) drop();
}

void Storage::drop() {
  require(counter_ != nullptr,
          "Storage::drop: this memory is borrowed, its owner alone can free it");
  if (!data_) return;
  if (cache_)
    cache_->give(data_, bytes_);
  else
    free_buffer(data_, bytes_);
  data_ = nullptr;
  counter_->add(kind_, -static_cast<std::int64_t>(bytes_));
}

void Storage::restore() {
  require(counter_ != nullptr,
          "Storage::restore: this memory is borrowed, its owner alone can allocate it");
  if (data_) return;
  data_ = cache_ ? static_cast<std::byte*>(cache_->take(bytes_, fetched_from_system))
                 : allocate_buffer(bytes_);
  if (!data_)
    fail("out of memory{}{}: cannot allocate a tensor of {} bytes; this rank uses {} bytes",
         cache_ ? " on " : "", cache_ ? name_of(device_) : "", bytes_, memory_use().current);
  counter_->add(kind_, static_cast<std::int64_t>(bytes_));
}

void Storage::set_kind(MemoryKind kind) {
  if (counter_ && data_) {
    counter_->line(kind_).add(-static_cast<std::int64_t>(bytes_));
    counter_->line(kind).add(static_cast<std::int64_t>(bytes_));
  }
  kind_ = kind;
}

const char* name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::parameters:
      return "parameters";
    case MemoryKind::gradients:
      return "gradients";
    case MemoryKind::optimizer_state:
      return "optimizer state";
    case MemoryKind::activations:
      return "activations";
    case MemoryKind::communication:
      return "communication";
  }
  fail("there is no memory of kind {}", static_cast<int>(kind));
}

MemoryScope::MemoryScope(MemoryKind kind) : before_(std::exchange(kind_here, kind)) {}

MemoryScope::~MemoryScope() {
  kind_here = before_;
}

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
  if (Cache* const cache = Cache::of_thread()) cache->clear();
  DeviceCache::clear_of_thread();
}

std::int64_t system_allocations() {
  return fetched_from_system;
}

}  // namespace ringside::autograd
