// How the ranks of a group connect in sub-groups (ProcessGroup::split).
//
// Every rank calls listen() and sends its endpoint to all others. Then every rank calls connect()
// with the endpoints of its own sub-group.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace ringside::collectives {

struct Connections;
struct Streams;

// Where a rank listens: bytes that only the rank's kind of connections can read.
using Endpoint = std::array<std::byte, 64>;

class SubGroupConnector {
 public:
  virtual ~SubGroupConnector() = default;

  virtual Endpoint listen() = 0;

  // Connects the sub-group `name`, in which this rank is number `rank`, and rank r listens at
  // members[r]. All members pass the same name, which no other sub-group of this group has. Blocks
  // until all members are connected, or throws Error. `check` is called many times a second
  // meanwhile: it throws if there is no use in waiting.
  virtual Connections connect(const std::string& name, int rank,
                              const std::vector<Endpoint>& members,
                              const std::function<void()>& check) = 0;

  // The same, with a socket to each member instead of a transport.
  virtual Streams connect_streams(const std::string& name, int rank,
                                  const std::vector<Endpoint>& members,
                                  const std::function<void()>& check) = 0;
};

}  // namespace ringside::collectives
