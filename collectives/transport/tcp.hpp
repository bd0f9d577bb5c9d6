// Ranks as processes, on one host or many: TCP.
//
// One thread does everything: it writes as much as the kernel takes, reads as much as has come, and
// sleeps in poll(2) when neither is possible. A payload is read straight to where the executor
// wants it, header and payload in one system call; it is copied nowhere.
#pragma once

#include <memory>
#include <string>

#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/bootstrap/sub_group_connector.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

// Sets up a connected socket that carries data, by the route that it takes. Between ranks of one
// host nothing is ever congested, and what is meant for networks costs a third of the bandwidth
// there (docs/performance.md): such a socket gets the plainest congestion control, reno, which
// every kernel allows to everyone, and keeps no more unsent than stays warm in cache. On other
// routes the system's choice stands. Returns the name of the congestion control in force; "unknown"
// where the system does not tell.
std::string set_up_data_socket(int socket);

// Finds the other ranks of the job (rendezvous.hpp) and connects with all of them. Errors: those of
// meet().
std::unique_ptr<Transport> connect_tcp(const RankInfo& rank_info);

// The same for ranks that have met. Sub-groups are made by `again`.
std::unique_ptr<Transport> make_tcp(const RankInfo& rank_info, Mesh mesh, MakeTransport again);

}  // namespace ringside::collectives
