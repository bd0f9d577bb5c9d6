// How the ranks of a job find each other and connect, each with each.
//
//     rank 0 listens on MASTER_ADDR:MASTER_PORT     every other rank listens on a port of its own, THEN tells rank 0 where
//     when all have come, rank 0 sends everybody the table of addresses
//     every rank connects to all ranks below it, twice (data, lifeline), and accepts from all above
//
// Whatever connects must say within seconds, in 96 bytes, that it belongs to this job; a stranger
// is dropped and logged, and the job goes on. One deadline holds for the whole: when it passes,
// rank 0 tells everybody who never came.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "collectives/bootstrap/rank_info.hpp"

namespace ringside::collectives {

// Where a rank listens.
struct Address {
  char text[46] = {};  // numeric, IPv4 or IPv6
  std::uint16_t port = 0;
  std::uint64_t host = 0;  // alike for ranks that can reach each other's memory: the same running
                           // kernel and process-ID namespace
};

// Element r of each list belongs to rank r; the own elements of `data` and `lifelines` are empty.
struct Mesh {
  using Socket = boost::asio::ip::tcp::socket;
  std::unique_ptr<boost::asio::io_context> io;  // what the sockets belong to
  std::vector<std::optional<Socket>> data;
  std::vector<std::optional<Socket>> lifelines;
  std::vector<Address> addresses;

  bool on_one_host() const;
};

// Blocks until this rank is connected with all others. Throws Error: the port is taken, rank 0
// cannot be reached, the job key or the world size differs, two processes claim one rank, or some
// ranks never came (named, on every rank that did).
Mesh meet(const RankInfo& rank_info);

// A rank that listens before it is known who will come: ranks that can tell each other their
// addresses in another way, as those of a group that is split, need no rank 0 to meet at.
class Entrance {
 public:
  // Listens where `other` does, on a free port.
  explicit Entrance(const Address& other);
  ~Entrance();
  Entrance(Entrance&&) noexcept;

  const Address& address() const { return address_; }

  // Connects with all others of `place`, whose addresses those are: like meet(). To be called once.
  Mesh meet(const RankInfo& rank_info, std::vector<Address> addresses);

 private:
  struct Listening;
  std::unique_ptr<Listening> listening_;
  Address address_;
};

}  // namespace ringside::collectives
