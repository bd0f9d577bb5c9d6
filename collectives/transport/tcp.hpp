// Ranks as processes, on one host or on many: TCP.
//
// One thread does everything. It writes as much as the kernel takes, reads as much as has arrived,
// and sleeps in ppoll(2) when neither is possible. The kernel reads a payload straight into the
// memory where the executor wants it; header and payload go in one system call.
#pragma once

#include <memory>
#include <vector>

#include "base/system/file_descriptor.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

// sockets[r] is connected to rank r; sockets[rank] is empty. `job` goes into every header.
std::unique_ptr<Transport> make_tcp_transport(int rank, std::uint32_t job,
                                              std::vector<FileDescriptor> sockets);

}  // namespace ringside::collectives
