#include "tests/cuda_standin/memory.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda_standin/machine.hpp"
#include "tests/cuda_standin/shared_file.hpp"

namespace ringside::standin {
namespace {

constexpr std::size_t head_bytes = 4096, slab_bytes = std::size_t{2} << 20, unit = 512;

// At the start of a slab's file.
struct Head {
  std::atomic<int> opened = 0;  // by how many other processes
};

struct Slab {
  SharedFile file;
  std::size_t bytes = 0;  // of the room
  std::size_t used = unit;
  int device = 0, live = 0;
  bool small = false;
  std::byte* base() const { return static_cast<std::byte*>(file.memory) + head_bytes; }
  Head& head() const { return *static_cast<Head*>(file.memory); }
};

struct Allocation {
  std::size_t bytes = 0;
  std::byte* slab = nullptr;  // its base
};

struct Opened {
  void* mapping = nullptr;
  std::size_t bytes = 0;
  int device = 0;
};

// All maps have an address as key: that of the base, the allocation, or the buffer.
struct Memory {
  Lock lock;
  std::map<const std::byte*, Slab> slabs;
  std::map<const std::byte*, Allocation> allocations;
  std::map<const std::byte*, Opened> opened;
  std::map<const std::byte*, std::size_t> pinned;
  std::byte* open_slab[most_devices] = {};  // that takes small allocations
  std::size_t used[most_devices] = {};
  char token = 0;  // what is freed is free of all uses when it is allocated again
  int accesses = 0;
  bool within_reach = false;
};
Memory& memory() {
  static Memory& the = *new Memory;
  return the;
}

// The entry at or before an address; nullptr if there is none.
template <class Map>
auto find_before(Map& map, const void* pointer) -> decltype(&*map.begin()) {
  const auto after = map.upper_bound(static_cast<const std::byte*>(pointer));
  return after == map.begin() ? nullptr : &*std::prev(after);
}

void protect(const std::byte* begin, std::size_t bytes, bool within_reach) {
  ::mprotect(const_cast<std::byte*>(begin), bytes,
             within_reach ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void set_within_reach(Memory& m, bool within_reach) {
  if (m.within_reach == within_reach) return;
  m.within_reach = within_reach;
  for (const auto& [base, slab] : m.slabs) protect(base, slab.bytes, within_reach);
  for (const auto& [base, opened] : m.opened) protect(base, opened.bytes, within_reach);
}

struct sigaction before_ours {};

// Says which allocation the host touched. Then the access is made again, and ends the process as it
// would have without us.
void explain_fault(int signal, siginfo_t* info, void*) {
  ::sigaction(signal, &before_ours, nullptr);
  const Place place = info->si_code > 0 ? place_of(info->si_addr) : Place{};
  if (place.type != cudaMemoryTypeDevice) {
    if (info->si_code <= 0) std::raise(signal);  // somebody sent it
    return;
  }
  char text[300];
  const int length = std::snprintf(
      text, sizeof text,
      "CUDA stand-in: the host touches memory of device %d, at %p, with %zu bytes left of its "
      "allocation. Only kernels and copies reach it: use cudaMemcpy, or copy_to() and copy_from() "
      "of DeviceBuffer\n",
      place.device, info->si_addr, place.bytes_left);
  [[maybe_unused]] const auto written =
      ::write(STDERR_FILENO, text, static_cast<std::size_t>(length));
}

void explain_faults() {
  [[maybe_unused]] static const bool once = [] {
    struct sigaction ours {};
    ours.sa_sigaction = explain_fault;
    ours.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGSEGV, &ours, &before_ours) == 0;
  }();
}

Slab& slab_for(std::size_t bytes, int device, Memory& m) {
  const bool small = bytes <= slab_bytes / 2;
  if (std::byte* const base = m.open_slab[device]; small && base)
    if (Slab& slab = m.slabs[base]; slab.used + bytes <= slab.bytes) return slab;
  Slab slab;
  slab.bytes = small ? slab_bytes : (bytes + unit + slab_bytes - 1) / slab_bytes * slab_bytes;
  slab.file = SharedFile::make(head_bytes + slab.bytes);
  new (slab.file.memory) Head;
  slab.device = device;
  slab.small = small;
  if (small) m.open_slab[device] = slab.base();
  explain_faults();
  protect(slab.base(), slab.bytes, m.within_reach);
  return m.slabs[slab.base()] = slab;
}

// The first 4 MiB, and behind them a line in each 64 KiB: to touch all pages of large buffers would
// take long.
void fill_with_nan(const Memory& m, const Slab& slab, std::byte* pointer, std::size_t bytes) {
  constexpr std::size_t whole = 4 << 20, line = 64, apart = 64 << 10;
  if (!m.within_reach) protect(slab.base(), slab.bytes, true);
  std::memset(pointer, 0xff, std::min(bytes, whole));  // NaN in all types
  for (std::size_t at = whole; at < bytes; at += apart)
    std::memset(pointer + at, 0xff, std::min(line, bytes - at));
  if (!m.within_reach) protect(slab.base(), slab.bytes, false);
}

}  // namespace

void* allocate(int device, std::size_t bytes) {
  Memory& m = memory();
  const std::size_t rounded = (bytes + unit - 1) / unit * unit;
  const std::lock_guard guard(m.lock);
  if (m.used[device] + rounded > device_bytes) return nullptr;
  Slab& slab = slab_for(rounded, device, m);
  std::byte* const pointer = slab.base() + slab.used;
  slab.used += rounded;
  ++slab.live;
  m.used[device] += rounded;
  m.allocations[pointer] = {bytes, slab.base()};
  ++machine().allocations;
  after(&m.token);
  fill_with_nan(m, slab, pointer, rounded);
  return pointer;
}

int device_of_allocation(const void* pointer) {
  Memory& m = memory();
  const std::lock_guard guard(m.lock);
  const auto found = m.allocations.find(static_cast<const std::byte*>(pointer));
  return found == m.allocations.end() ? -1 : m.slabs[found->second.slab].device;
}

bool deallocate(void* pointer, int& device) {
  Memory& m = memory();
  const std::lock_guard guard(m.lock);
  const auto found = m.allocations.find(static_cast<const std::byte*>(pointer));
  if (found == m.allocations.end()) return false;
  before(&m.token);
  Slab& slab = m.slabs[found->second.slab];
  device = slab.device;
  m.used[device] -= (found->second.bytes + unit - 1) / unit * unit;
  fill_with_nan(m, slab, const_cast<std::byte*>(found->first), found->second.bytes);
  m.allocations.erase(found);
  --machine().allocations;
  if (--slab.live > 0) return true;
  std::byte* const base = slab.base();
  if (slab.head().opened > 0)
    violation("memory was freed that another process has open: it must be closed there first");
  if (m.open_slab[device] == base) m.open_slab[device] = nullptr;
  ::close(slab.file.descriptor);
  ::munmap(slab.file.memory, head_bytes + slab.bytes);
  m.slabs.erase(base);
  return true;
}

Access::Access() {
  Memory& m = memory();
  const std::lock_guard guard(m.lock);
  ++m.accesses;
  set_within_reach(m, true);
}
Access::~Access() {
  const std::lock_guard guard(memory().lock);
  --memory().accesses;
}

void host_has_waited() {
  Memory& m = memory();
  const std::lock_guard guard(m.lock);
  if (m.accesses == 0) set_within_reach(m, false);
}

std::size_t used_bytes(int device) {
  Memory& m = memory();
  const std::lock_guard guard(m.lock);
  return m.used[device];
}

void* allocate_pinned(std::size_t bytes) {
  void* const pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  Memory& m = memory();
  const std::lock_guard guard(m.lock);
  m.pinned[static_cast<std::byte*>(pointer)] = bytes;
  ++machine().allocations;
  return pointer;
}

bool deallocate_pinned(void* pointer) {
  Memory& m = memory();
  {
    const std::lock_guard guard(m.lock);
    if (m.pinned.erase(static_cast<std::byte*>(pointer)) == 0) return false;
    --machine().allocations;
  }
  std::free(pointer);
  return true;
}

Place place_of(const void* pointer) {
  Memory& m = memory();
  const auto* const at = static_cast<const std::byte*>(pointer);
  const std::lock_guard guard(m.lock);
  const auto left = [at](const std::byte* begin, std::size_t bytes) {
    return at < begin + bytes ? static_cast<std::size_t>(begin + bytes - at) : 0;
  };
  if (const auto* found = find_before(m.allocations, at))
    if (const std::size_t bytes = left(found->first, found->second.bytes); bytes > 0)
      return {cudaMemoryTypeDevice, m.slabs[found->second.slab].device, bytes, false};
  if (const auto* found = find_before(m.opened, at))
    if (const std::size_t bytes = left(found->first, found->second.bytes); bytes > 0)
      return {cudaMemoryTypeDevice, found->second.device, bytes, true};
  if (const auto* found = find_before(m.pinned, at))
    if (const std::size_t bytes = left(found->first, found->second); bytes > 0)
      return {cudaMemoryTypeHost, 0, bytes, false};
  return {};
}

bool range_of(const void* pointer, void*& base, std::size_t& bytes) {
  Memory& m = memory();
  const std::lock_guard guard(m.lock);
  const auto* const at = static_cast<const std::byte*>(pointer);
  auto* const found = find_before(m.slabs, at);
  if (!found || at >= found->first + found->second.bytes) return false;
  base = found->second.base();
  bytes = found->second.bytes;
  return true;
}

bool share(const void* pointer, cudaIpcMemHandle_t& handle) {
  Memory& m = memory();
  const std::lock_guard guard(m.lock);
  const auto found = m.allocations.find(static_cast<const std::byte*>(pointer));
  if (found == m.allocations.end()) return false;
  const Slab& slab = m.slabs[found->second.slab];
  const FileHandle named{::getpid(), slab.file.descriptor, head_bytes + slab.bytes, slab.device};
  handle = {};
  std::memcpy(&handle, &named, sizeof named);
  return true;
}

cudaError_t open(const cudaIpcMemHandle_t& handle, void*& base) {
  FileHandle named;
  std::memcpy(&named, &handle, sizeof named);
  if (named.process == ::getpid()) return cudaErrorDeviceUninitialized;  // as the driver says it
  if (!machine().peers && named.device != current_device()) return cudaErrorPeerAccessUnsupported;
  const SharedFile file = SharedFile::open(named);
  if (!file.memory) return cudaErrorInvalidResourceHandle;
  ++static_cast<Head*>(file.memory)->opened;
  auto* const begin = static_cast<std::byte*>(file.memory) + head_bytes;
  Memory& m = memory();
  const std::lock_guard guard(m.lock);
  m.opened[begin] = {file.memory, named.bytes - head_bytes, named.device};
  protect(begin, named.bytes - head_bytes, m.within_reach);
  ++machine().opened;
  base = begin;
  return cudaSuccess;
}

bool close(void* base) {
  Memory& m = memory();
  const std::lock_guard guard(m.lock);
  const auto found = m.opened.find(static_cast<std::byte*>(base));
  if (found == m.opened.end()) return false;
  --static_cast<Head*>(found->second.mapping)->opened;
  ::munmap(found->second.mapping, head_bytes + found->second.bytes);
  m.opened.erase(found);
  --machine().opened;
  return true;
}

}  // namespace ringside::standin
