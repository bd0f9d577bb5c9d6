// The transport that suits where the ranks are.
#pragma once

#include <memory>

#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

// Finds the other ranks of the job (rendezvous.hpp). Where all of them run on one host they share
// memory (shm.hpp), otherwise they use TCP; so do sub-groups, each for itself: of a job on two
// hosts, the ranks of one host share memory among themselves. Where memory cannot be shared (a
// container with a tiny /dev/shm), rank 0 says so on stderr, and all take TCP. Errors: those of
// meet().
std::unique_ptr<Transport> connect_automatic(const RankInfo& rank_info);

}  // namespace ringside::collectives
