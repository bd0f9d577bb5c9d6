// How ranks that are connected over sockets found sub-groups: with sockets again, and with the same kind of transport on them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/rendezvous.hpp"
#include "collectives/transport.hpp"

namespace ringside::collectives {

// Makes one rank's transport of the connections between all of them.
using MakeTransport = std::function<std::unique_ptr<Transport>(const Place&, Mesh)>;

class Founder {
 public:
  // `own` is where this rank listens in the group that there is.
  Founder(const Place& place, const Address& own, MakeTransport make) : place_(place), own_(own), make_(std::move(make)) {}

  // Transport::open_door() and Transport::found().
  Transport::Contact open_door();
  std::unique_ptr<Transport> found(const std::string& name, int rank, const std::vector<Transport::Contact>& members);

 private:
  Place place_;
  Address own_;
  MakeTransport make_;
  std::optional<Entrance> entrance_;
};

}  // namespace ringside::collectives
