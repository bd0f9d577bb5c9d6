#include "collectives/bootstrap/rendezvous/sockets.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>

#include <netinet/tcp.h>

#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/read.hpp>

#include "base/error.hpp"
#include "base/system/fork.hpp"
#include "base/warn.hpp"
#include "collectives/bootstrap/rendezvous/address.hpp"
#include "collectives/diagnostics/resources.hpp"

namespace ringside::collectives {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr Seconds longest_attempt{5};  // to connect

// If nobody listens on a port that the kernel may also assign to outgoing connections, a socket
// that connects to it can be assigned this very port, and is then connected to itself.
bool is_connected_to_itself(const tcp::socket& socket) {
  error_code error;
  return socket.local_endpoint(error) == socket.remote_endpoint(error);
}

// One attempt. A name may have several addresses, and one of them may not answer.
error_code try_to_connect(asio::io_context& io, tcp::socket& socket, const tcp::endpoint& endpoint,
                          Seconds patience) {
  std::optional<error_code> result;
  socket.async_connect(endpoint, [&](error_code error) { result = error; });
  keep_from_children(socket.native_handle());
  if (run_until(io, Deadline::after(patience), [&] { return result.has_value(); })) return *result;
  socket.close();
  run_until(io, Deadline::after(Seconds(1)), [&] { return result.has_value(); });
  return asio::error::timed_out;
}

}  // namespace

bool is_of_this_host(asio::io_context& io, const asio::ip::address& address) {
  tcp::socket socket(io);
  error_code error;
  const tcp::endpoint any_port(address, 0);
  socket.open(any_port.protocol(), error);
  if (!error) socket.bind(any_port, error);
  return !error;
}

asio::ip::address everywhere(asio::io_context& io) {
  const asio::ip::address both = asio::ip::address_v6::any();
  return is_of_this_host(io, both) ? both : asio::ip::address_v4::any();
}

tcp::acceptor listen_at(asio::io_context& io, const tcp::endpoint& endpoint, const std::string& who,
                        int at_once) {
  tcp::acceptor acceptor(io);
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  keep_from_children(acceptor.native_handle());
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && endpoint.address() == asio::ip::address_v6::any())
    acceptor.set_option(asio::ip::v6_only(false), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(std::max(128, at_once), error);
  check_open_files(error.value(), who);
  require(error != asio::error::address_in_use || endpoint.port() != 0, "{}", no_free_port(who));
  require(error != asio::error::address_in_use,
          "{} cannot listen on {}: the port is taken. Choose another with MASTER_PORT (or "
          "--master-port)",
          who, to_text(endpoint));
  require(error != asio::error::access_denied,
          "{} cannot listen on {}: {}. Choose a MASTER_PORT of 1024 or higher", who,
          to_text(endpoint), error.message());
  require(!error || endpoint.port() != 0,
          "{} cannot listen on {}: {}. Expected an address of this host", who, to_text(endpoint),
          error.message());
  require(!error,
          "{} cannot listen on {}: {}. MASTER_ADDR must be an address of the host of rank 0", who,
          to_text(endpoint), error.message());
  return acceptor;
}

tcp::socket connect_to(asio::io_context& io, const std::vector<tcp::endpoint>& endpoints,
                       const Deadline& deadline, const std::string& who, const std::string& whom,
                       const std::string& hint, const std::function<void()>& check) {
  error_code last = asio::error::in_progress;
  bool hinted = hint.empty();
  // An address that leads nowhere must leave time for the others.
  Seconds attempt = endpoints.size() == 1 ? longest_attempt : Seconds(1);
  for (auto pause = std::chrono::milliseconds(5);;
       pause = std::min(pause * 2, std::chrono::milliseconds(500))) {
    for (const auto& endpoint : endpoints) {
      check();
      tcp::socket socket(io);
      const Seconds patience = std::min(deadline.remaining(), attempt);
      const error_code error = try_to_connect(io, socket, endpoint, patience);
      if (!error && !is_connected_to_itself(socket)) return socket;
      // An attempt that only the deadline ends tells less than the attempt before it.
      const bool cut_short = error == asio::error::timed_out && patience < longest_attempt;
      if (!cut_short || last == asio::error::in_progress) last = error;
      check_open_files(last.value(), who);
      require(
          error != asio::error::network_unreachable || !endpoint.address().is_loopback(),
          "{} cannot reach {} on its own host: the loopback interface is down. Start it (ip link "
          "set lo up), or set MASTER_ADDR to another address of this host",
          who, to_text(endpoint));
    }
    require(!deadline.expired() || last.value() != EADDRNOTAVAIL, "{}", no_free_port(who));
    require(!deadline.expired(), "{} cannot be reached at {} within {:.0f} s ({}){}{}", whom,
            to_text(endpoints), deadline.total().count(), last.message(), hint.empty() ? "" : ". ",
            hint);
    if (!hinted && seconds_since(deadline.start()) > time_to_hint.count()) {
      warn("{} finds nobody at {} ({}). {}", who, to_text(endpoints), last.message(), hint);
      hinted = true;
    }
    attempt = std::min(attempt * 2, longest_attempt);
    run_until(io, Deadline::after(pause), [] { return false; });  // others may shake hands
  }
}

void set_up_data_socket(tcp::socket& socket) {
  error_code error;
  const auto here = socket.local_endpoint(error).address(),
             there = socket.remote_endpoint(error).address();
  if (error || here != there) return;
  constexpr int most_unsent = 256 * 1024;  // bytes
  const int handle = socket.native_handle();
  ::setsockopt(handle, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
  ::setsockopt(handle, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most_unsent, sizeof most_unsent);
}

error_code read_all(asio::io_context& io, tcp::socket& socket, asio::mutable_buffer buffer,
                    const Deadline& deadline) {
  std::optional<error_code> result;
  asio::async_read(socket, buffer, [&](error_code error, std::size_t) { result = error; });
  if (run_until(io, deadline, [&] { return result.has_value(); })) return *result;
  socket.cancel();
  run_until(io, Deadline::after(Seconds(1)), [&] { return result.has_value(); });
  return asio::error::timed_out;
}

}  // namespace ringside::collectives
