// How ranks that have met (rendezvous.hpp) come to share memory: each makes a segment for what the
// others send it, all tell each other where it is, and all open all of them.
#pragma once

#include <vector>

#include "base/error.hpp"
#include "collectives/bootstrap/rendezvous.hpp"
#include "collectives/transport/shm/shared_segment.hpp"

namespace ringside::collectives {

// Why these ranks cannot share memory. Every rank throws it, and their connections are as they
// were.
class CannotShare : public Error {
  using Error::Error;
};

// What all ranks must have alike. Each ordered pair has a lane of slots in the receiver's segment.
struct ShmLayout {
  std::uint32_t slot_bytes;  // of payload
  std::uint32_t slots;       // per lane
  bool operator==(const ShmLayout&) const = default;
};

struct SharedWorld {
  std::vector<SharedSegment> segments;  // [rank]
  std::vector<std::int32_t> pids;       // [rank] the process of that rank
};

// Uses the mesh's data connections, which may be closed afterwards; one deadline of
// place.connect_timeout holds for all. Throws CannotShare: a rank lacks the memory, or is on
// another host or in another container, or has another layout. Throws Error: one is gone.
SharedWorld share_segments(const RankInfo& rank_info, Mesh& mesh, const ShmLayout& layout,
                           std::size_t segment_bytes);

}  // namespace ringside::collectives
