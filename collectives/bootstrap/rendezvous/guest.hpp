// The guests of a rendezvous: every rank but rank 0. A guest listens on a port of its own, tells
// rank 0 that address, and gets the table of all addresses. While it connects with the others, rank
// 0 may tell it that a rank has died.
#pragma once

#include "collectives/bootstrap/rendezvous/mesh.hpp"

namespace ringside::collectives {

// `masters` are the endpoints of MASTER_ADDR:MASTER_PORT, where rank 0 listens. `hint`, unless
// empty, says why it may not be there.
Mesh join_rendezvous(const RankInfo& rank_info,
                     const std::vector<boost::asio::ip::tcp::endpoint>& masters,
                     const std::string& hint, MeshBuilder& builder);

}  // namespace ringside::collectives
