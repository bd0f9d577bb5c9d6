// Accepts connections and passes on those that belong to the job.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>

#include "base/clock.hpp"
#include "collectives/bootstrap/rendezvous/handshake.hpp"

namespace ringside::collectives {

// It works while the io_context of its socket runs, on any number of connections at a time. A
// connection that does not send a valid handshake within `patience` is closed, with a line on
// stderr; the job goes on.
class Acceptor {
 public:
  using Welcome = std::function<void(const Handshake&, boost::asio::ip::tcp::socket)>;

  // `welcome` takes each connection whose handshake has the right key.
  Acceptor(boost::asio::ip::tcp::acceptor acceptor, Key key, int rank, Welcome welcome,
           Seconds patience = Seconds(5));

 private:
  struct Candidate;
  void accept();
  void read_handshake(const std::shared_ptr<Candidate>& candidate);
  void turn_away(Candidate& candidate, const std::string& why);

  boost::asio::ip::tcp::acceptor acceptor_;
  Key key_;
  int rank_;
  Welcome welcome_;
  Seconds patience_;
};

}  // namespace ringside::collectives
