// Memory of this process that the ranks beside it read in place: what ProcessGroup::allocate gives
// out.
//
// A message whose payload lies here is sent by reference: its slot says where, the receiver maps
// that segment (once) and reads the very bytes. Nothing is copied in or out; in return the
// payload's `sent` comes only when the receiver has read it. The memory belongs to the process, not
// to a group: any group over shm finds it here by its address.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/transport/shm/shared_segment.hpp"

namespace ringside::collectives {

// Where a payload lies, in words that another process understands. `id` tells the segments of one
// process apart, also where a file descriptor has been used again; 0: nowhere.
struct SharedPlace {
  SharedSegment::Handle segment;
  std::uint64_t id = 0;
  std::uint64_t offset = 0;
};

// At least `bytes` bytes of zeros, on a page border; freed with the last copy of the pointer. Any
// thread may call it. Throws Error when /dev/shm has not that much.
std::shared_ptr<std::byte[]> allocate_shared(std::size_t bytes);

// Where `payload` lies, if all of it lies in one allocation. Any thread may call it.
std::optional<SharedPlace> find_shared(std::span<const std::byte> payload);

// The other side: segments of other processes, mapped when they are first read from. Those that
// their makers have freed are let go when the next one is mapped.
class SharedViews {
 public:
  // The bytes at `place`. Throws Error where the segment cannot be reached.
  std::span<const std::byte> at(const SharedPlace& place, std::size_t bytes);

 private:
  struct View {
    std::int32_t pid;
    std::uint64_t id;
    SharedSegment segment;
  };
  std::vector<View> views_;
};

}  // namespace ringside::collectives
