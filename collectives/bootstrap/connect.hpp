// Connects a rank with the others of its job, by one of the transports.
//
// Each function but connect_threads() finds the other ranks as rendezvous.hpp describes, and throws
// the Errors of connect_mesh(). connect_tcp() and its like set rank_info.backend and costs.
//
// The ranks compare what they have measured by the table of the rendezvous. If that differs, as
// between hosts that were measured one by one, all take the built-in costs. The cores of all hosts
// count together. Rank 0 warns of an invalid `calibration`.
#pragma once

#include <memory>
#include <optional>

#include "collectives/bootstrap/connections.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/selection/calibration.hpp"
#include "collectives/transport/link.hpp"
#include "collectives/transport/shm/shm.hpp"

namespace ringside::collectives {

Connections connect_tcp(RankInfo rank_info, const Calibration& calibration = calibration_here());

// For ranks of one host. Throws also the Errors of share_segments.hpp.
Connections connect_shm(RankInfo rank_info, const ShmOptions& options = {},
                        const Calibration& calibration = calibration_here());

// Shared memory if all ranks run on one host, otherwise TCP. Sub-groups choose in the same way: in
// a job on two hosts, the ranks of one host share memory among themselves. Where memory cannot be
// shared (each rank in a container of its own), rank 0 says so on stderr, and all use TCP.
Connections connect_automatic(RankInfo rank_info, const ShmOptions& options = {},
                              const Calibration& calibration = calibration_here());

// For ranks that tell each other where they listen by a channel of their own, and need no rank 0 to
// meet at: each listens, and then connects with the endpoints of all. This rank is reached at
// `host`, a name or an address of this host, or at rank_info.interface if one is named;
// rank_info.backend is "tcp", "shm" or "auto". Throws Error.
std::unique_ptr<SubGroupConnector> make_connector_at(const std::string& host,
                                                     const RankInfo& rank_info);

// Ranks as threads of this process. Each calls connect_threads() with the same world.
class ThreadsWorld;
std::shared_ptr<ThreadsWorld> make_threads_world(int size);
Connections connect_threads(std::shared_ptr<ThreadsWorld> world, int rank);

// The same connections, with the transport behind an emulated link, which sub-groups share, and its
// costs. Without a link, `connections` themselves.
Connections behind_link(Connections connections, const std::optional<Link>& link);
Connections behind_wire(Connections connections, std::shared_ptr<Wire> wire);

}  // namespace ringside::collectives
