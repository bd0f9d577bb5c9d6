// What connects one rank with the others of its group. connect.hpp has the functions that make it.
#pragma once

#include <memory>
#include <vector>

#include "base/system/file_descriptor.hpp"
#include "collectives/bootstrap/sub_group_connector.hpp"
#include "collectives/diagnostics/control_channel.hpp"
#include "collectives/execution/executor_options.hpp"
#include "collectives/selection/cost_model.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

class Wire;  // transport/emulated_link.hpp

struct Connections {
  std::unique_ptr<Transport> transport;          // the data plane
  std::unique_ptr<ControlChannel> control;       // failures, and where the ranks are
  std::unique_ptr<SubGroupConnector> connector;  // groups of some of the ranks
  // Of a message over this transport. They are the same on all ranks, because each rank selects
  // algorithms for itself.
  MachineCosts costs = {};
  std::shared_ptr<Wire> wire = nullptr;  // of an emulated link, for sub-groups; or none
};

// A socket to each other rank, for messages that no call expects (messages.hpp).
struct Streams {
  std::vector<FileDescriptor> sockets;  // [rank]; none to this rank itself
  std::unique_ptr<ControlChannel> control;
  std::uint32_t job = 0;                 // as Transport::job()
  std::shared_ptr<Wire> wire = nullptr;  // of an emulated link, or none
  ExecutorOptions options = {};          // how long a rank waits
};

}  // namespace ringside::collectives
