// Ranks as processes, on one host or many: TCP.
//
// One thread does everything: it writes as much as the kernel takes, reads as much as has come, and sleeps in poll(2) when neither is
// possible. A payload is read straight to where the executor wants it, header and payload in one system call; it is copied nowhere.
#pragma once

#include <memory>

#include "collectives/place.hpp"
#include "collectives/transport.hpp"

namespace ringside::collectives {

// Finds the other ranks of the job (rendezvous.hpp) and connects with all of them. Errors: those of meet().
std::unique_ptr<Transport> connect_tcp(const Place& place);

}  // namespace ringside::collectives
