// How the ranks of a job find each other and connect, each with each.
//
//     rank 0 listens on MASTER_ADDR:MASTER_PORT
//     every other rank listens on a port of its own, then tells rank 0 that address
//     when all have joined, rank 0 sends the table of addresses to everybody; for ranks of its own
//       host the table has the address by which other hosts reached it
//     every rank connects to each rank below it, and accepts from each above: a connection for
//       control messages, and one for data, unless they may share memory
//     every rank tells rank 0 when it has all connections, or why it cannot; when all have, rank 0
//       tells everybody, and the reason at once
//
// host.hpp is rank 0's part, guest.hpp that of the others, handshake.hpp what both say, and
// mesh.hpp how each connects with each.
//
// Rank 0 keeps the connections over which the ranks came. If a rank dies before all are connected,
// its connection closes, and rank 0 tells the others at once.
//
// A connection must identify itself within seconds, by a handshake of 104 bytes (handshake.hpp). A
// stranger is dropped and logged, and the job goes on. One deadline holds for the whole: when it
// passes, rank 0 tells everybody which ranks never came.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/bootstrap/rendezvous/mesh.hpp"

namespace ringside::collectives {

// Blocks until this rank is connected with all others. Throws Error: the port is taken, rank 0
// cannot be reached, the job key, the world size or the backend differs, two processes have the
// same rank, a rank has died, or some ranks never came (every rank that did names them).
Mesh connect_mesh(const RankInfo& rank_info);

// A rank that listens before the other ranks are known. Ranks that can tell each other their
// addresses in another way, as the members of a sub-group can, need no rank 0 to find each other.
class Listener {
 public:
  // Listens at the host part of `other`, on a free port. Throws Error.
  explicit Listener(const Address& other);
  const Address& address() const { return address_; }

  // Connects with the ranks that listen at `addresses`, as connect_mesh() does. Call it once.
  // `names` are those of these ranks. `check` is called many times a second meanwhile: it throws if
  // there is no use in waiting.
  Mesh connect_mesh(const RankInfo& rank_info, std::vector<Address> addresses, RankNames names,
                    const std::function<void()>& check);

 private:
  std::unique_ptr<boost::asio::io_context> io_;  // must outlive the acceptor
  std::optional<boost::asio::ip::tcp::acceptor> acceptor_;
  Address address_;
};

}  // namespace ringside::collectives
