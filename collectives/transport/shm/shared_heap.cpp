#include "collectives/transport/shm/shared_heap.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/error.hpp"
#include "collectives/one_sided/protocol.hpp"

namespace ringside::collectives {
namespace {

// The first page of every segment says whether it is still in use; the data begins on the second.
constexpr std::size_t page = 4096;

one_sided::Flag& freed_flag(const SharedSegment& segment) {
  return *reinterpret_cast<one_sided::Flag*>(segment.data());
}

struct Allocation {
  std::uint64_t id;
  SharedSegment segment;
};

struct Heap {
  std::mutex mutex;  // guards what follows
  std::vector<Allocation> allocations;
  std::uint64_t last_id = 0;
  std::atomic<std::size_t> count =
      0;  // of allocations: most processes have none, and need not ask for the mutex
};

// Never destroyed: a buffer that is a global variable may be freed after everything else.
Heap& heap() {
  static Heap* const the_heap = new Heap;
  return *the_heap;
}

void free_shared(std::uint64_t id) {
  const std::lock_guard lock(heap().mutex);
  auto& all = heap().allocations;
  const auto found =
      std::find_if(all.begin(), all.end(), [id](const Allocation& a) { return a.id == id; });
  one_sided::HostMemory::store_release(freed_flag(found->segment).value, 1);
  all.erase(found);
  heap().count = all.size();
}

}  // namespace

std::shared_ptr<std::byte[]> allocate_shared(std::size_t bytes) {
  SharedSegment segment =
      SharedSegment::create(page + std::max<std::size_t>(bytes, 1), "this process", "for a buffer");
  std::byte* data = segment.data() + page;
  const std::lock_guard lock(heap().mutex);
  const std::uint64_t id = ++heap().last_id;
  heap().allocations.push_back({id, std::move(segment)});
  heap().count = heap().allocations.size();
  return {data, [id](std::byte*) { free_shared(id); }};
}

std::optional<SharedPlace> find_shared(std::span<const std::byte> payload) {
  if (heap().count == 0) return std::nullopt;
  const std::lock_guard lock(heap().mutex);
  for (const Allocation& a : heap().allocations) {
    const std::byte *begin = a.segment.data(), *end = begin + a.segment.size();
    if (payload.data() >= begin && payload.data() + payload.size() <= end)
      return SharedPlace{a.segment.handle(), a.id,
                         static_cast<std::uint64_t>(payload.data() - begin)};
  }
  return std::nullopt;
}

std::span<const std::byte> SharedViews::at(const SharedPlace& place, std::size_t bytes) {
  require(place.offset + bytes <= place.segment.bytes,
          "a payload of {} bytes at {} does not lie in a shared buffer of {} bytes: do the "
          "ranks run different versions?",
          bytes, place.offset, place.segment.bytes);
  const auto is_wanted = [&](const View& v) {
    return v.pid == place.segment.pid && v.id == place.id;
  };
  auto found = std::find_if(views_.begin(), views_.end(), is_wanted);
  if (found == views_.end()) {
    std::erase_if(views_, [](const View& v) {
      return one_sided::HostMemory::load_acquire(freed_flag(v.segment).value) != 0;
    });
    views_.push_back({place.segment.pid, place.id,
                      SharedSegment::open(place.segment, SharedSegment::Access::read)});
    found = views_.end() - 1;
  }
  return {found->segment.data() + place.offset, bytes};
}

}  // namespace ringside::collectives
