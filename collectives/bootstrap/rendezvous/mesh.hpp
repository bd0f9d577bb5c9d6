// Connections between all pairs of ranks, and how one rank makes its own.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/system/file_descriptor.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/bootstrap/rendezvous/acceptor.hpp"
#include "collectives/bootstrap/rendezvous/address.hpp"
#include "collectives/bootstrap/rendezvous/handshake.hpp"
#include "collectives/bootstrap/rendezvous/sockets.hpp"
#include "collectives/rank_names.hpp"

namespace ringside::collectives {

// Element r of each list belongs to rank r; the elements of this rank itself are empty in `data`
// and `control`. All elements of `data` are empty where ranks of one host may share memory.
struct Mesh {
  using Socket = boost::asio::ip::tcp::socket;
  std::unique_ptr<boost::asio::io_context> io;  // must outlive the sockets
  std::vector<std::optional<Socket>> data;
  std::vector<std::optional<Socket>> control;
  std::vector<Address> addresses;
  RankNames names;  // in sentences

  bool on_one_host() const;
  bool have_equal_costs() const;  // Address::costs
  int cores() const;              // of all hosts together
};

// Makes one rank's connections: it connects to each rank below it, and accepts from each above.
class MeshBuilder {
 public:
  using Socket = Mesh::Socket;

  MeshBuilder(const RankInfo& rank_info, std::unique_ptr<boost::asio::io_context> io,
              RankNames names = {});

  boost::asio::io_context& io() { return *mesh_.io; }
  std::string who() const { return name_of_rank(rank_info_.rank); }

  // The addresses of all ranks. This rank's own is set by listen_on().
  std::vector<Address>& addresses() { return mesh_.addresses; }

  // Throws if there is no use in waiting any longer.
  void set_check(std::function<void()> check) { check_ = std::move(check); }

  // Takes connections of the purpose `join`; without it they are closed.
  void set_welcome_joiner(Acceptor::Welcome welcome) { welcome_joiner_ = std::move(welcome); }

  // `endpoint`, or its port at all addresses of this host: where MASTER_ADDR names a host that the
  // ranks of other hosts know by another address than the loopback address of `endpoint`.
  boost::asio::ip::tcp::endpoint open_to_others(const boost::asio::ip::tcp::endpoint& endpoint);

  void listen_on(const boost::asio::ip::tcp::endpoint& endpoint);
  void listen_with(const FileDescriptor& listening);  // a socket of IPv4; it stays open
  void accept_from(boost::asio::ip::tcp::acceptor acceptor);

  // Connects to rank `r`, which listens at the first of `endpoints` that accepts, and exchanges
  // proofs of the job key. `connected` is called with a new connection before its first byte.
  // Throws Error at the deadline, and at once if somebody listens there who has not the key. `whom`
  // begins a sentence that goes on "cannot be reached at"; `hint` is as in connect_to().
  Socket connect(
      int r, const std::vector<boost::asio::ip::tcp::endpoint>& endpoints, const Deadline& deadline,
      const std::string& whom, const std::string& hint, Handshake::Purpose purpose,
      const std::function<void(const Socket&)>& connected = [](const Socket&) {});

  // Connects with every other rank that listens at its address. Throws Error at the deadline.
  void connect_all();

  // The finished mesh. Nothing is accepted afterwards.
  Mesh take();

  // Runs handlers until `done()`, or until the deadline. Returns whether it is done. Throws what
  // the check throws.
  template <class Done>
  bool wait_until(const Deadline& deadline, Done done) {
    constexpr Seconds between_checks{0.05};
    while (
        !run_until(io(), Deadline::after(std::min(deadline.remaining(), between_checks)), done)) {
      check_();
      if (deadline.expired()) return false;
    }
    return true;
  }

 private:
  void welcome(const Handshake& handshake, Socket socket);
  bool needs_data() const;
  std::string hint_for(int r) const;
  std::string name_of_rank(int r) const { return "rank " + mesh_.names(r); }
  bool exchange_proofs(int r, Socket& socket, const Deadline& deadline, Handshake::Purpose purpose);

  const RankInfo rank_info_;
  Mesh mesh_;
  std::function<void()> check_ = [] {};
  Acceptor::Welcome welcome_joiner_ = [](const Handshake&, Socket) {};
  // They must not outlive the io_context of the mesh.
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
};

}  // namespace ringside::collectives
