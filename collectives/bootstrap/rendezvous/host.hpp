// The host of a rendezvous: rank 0. It waits until all ranks have joined, sends everybody the table
// of addresses, or the reason why there is none, and tells everybody when all are connected.
#pragma once

#include "collectives/bootstrap/rendezvous/mesh.hpp"

namespace ringside::collectives {

// `masters` are the endpoints of MASTER_ADDR:MASTER_PORT. `hint`, unless empty, says why other
// ranks may not come.
Mesh host_rendezvous(const RankInfo& rank_info,
                     const std::vector<boost::asio::ip::tcp::endpoint>& masters,
                     const std::string& hint, MeshBuilder& builder);

}  // namespace ringside::collectives
