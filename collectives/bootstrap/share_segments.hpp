// How connected ranks come to share memory: each creates a segment for the messages of the others,
// all tell each other where it is, and all open all of them.
#pragma once

#include <vector>

#include "base/error.hpp"
#include "collectives/bootstrap/rendezvous/rendezvous.hpp"
#include "collectives/transport/shm/shared_segment.hpp"
#include "collectives/transport/shm/shm.hpp"

namespace ringside::collectives {

// Why these ranks cannot share memory. All ranks throw it, and the mesh is still usable.
class CannotShare : public Error {
  using Error::Error;
};

// Returns the segments of all ranks, which learn of them by the control connections; one deadline
// of rank_info.connect_timeout holds for all. Throws CannotShare if a rank lacks the memory, runs
// on another host or in another container, or has another layout; Error if a rank has died. All
// ranks take `is_crowded` from rank 0: where payloads lie in a segment depends on it.
std::vector<SharedSegment> share_segments(const RankInfo& rank_info, Mesh& mesh,
                                          const ShmLayout& layout, bool& is_crowded);

}  // namespace ringside::collectives
