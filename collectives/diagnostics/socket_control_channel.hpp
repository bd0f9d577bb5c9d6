// The control channel of ranks that are processes: a second connection between every two ranks,
// beside the one for data.
#pragma once

#include <memory>
#include <vector>

#include "base/system/file_descriptor.hpp"
#include "collectives/diagnostics/control_channel.hpp"

namespace ringside::collectives {

// sockets[r] is connected to rank r; sockets[rank] is empty. `processes` as in ControlChannel.
std::unique_ptr<ControlChannel> make_socket_control_channel(
    int rank, std::vector<FileDescriptor> sockets, std::vector<std::int64_t> processes = {});

}  // namespace ringside::collectives
