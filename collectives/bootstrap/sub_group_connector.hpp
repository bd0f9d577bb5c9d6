// How ranks that are connected over sockets found sub-groups: with sockets again, and with the same
// kind of transport on them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/bootstrap/rendezvous.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

// Makes one rank's transport of the connections between all of them.
using MakeTransport = std::function<std::unique_ptr<Transport>(const RankInfo&, Mesh)>;

class Founder {
 public:
  // `own` is where this rank listens in the group that there is.
  Founder(const RankInfo& rank_info, const Address& own, MakeTransport make)
      : rank_info_(rank_info), own_(own), make_(std::move(make)) {}

  // Transport::open_door() and Transport::found().
  Transport::Contact open_door();
  std::unique_ptr<Transport> found(const std::string& name, int rank,
                                   const std::vector<Transport::Contact>& members);

 private:
  RankInfo rank_info_;
  Address own_;
  MakeTransport make_;
  std::optional<Entrance> entrance_;
};

}  // namespace ringside::collectives
