// The options of a data socket depend on its route.
#include <string>

#include <doctest/doctest.h>
#include <netinet/tcp.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "collectives/bootstrap/rendezvous/sockets.hpp"

namespace {

namespace ip = boost::asio::ip;

// A connection from `from` to 127.0.0.1.
struct Connection {
  explicit Connection(const char* from) {
    socket.open(ip::tcp::v4());
    socket.bind({ip::make_address(from), 0});
    socket.connect(listener.local_endpoint());
  }

  std::string congestion_control() {
    char name[16] = {};
    socklen_t length = sizeof name;
    REQUIRE(::getsockopt(socket.native_handle(), IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0);
    return name;
  }
  int most_unsent() {
    int bytes = -1;
    socklen_t length = sizeof bytes;
    REQUIRE(::getsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, &length) ==
            0);
    return bytes;
  }

  boost::asio::io_context io;
  ip::tcp::acceptor listener{io, {ip::address_v4::loopback(), 0}};
  ip::tcp::socket socket{io};
};

}  // namespace

TEST_CASE("a socket within one host uses reno and keeps little unsent") {
  Connection connection("127.0.0.1");
  ringside::collectives::set_up_data_socket(connection.socket);
  CHECK(connection.congestion_control() == "reno");
  CHECK(connection.most_unsent() == 256 * 1024);
}

TEST_CASE("a socket between two addresses keeps the system's defaults") {
  Connection connection("127.0.0.2");
  const auto before = connection.congestion_control();
  const int unsent = connection.most_unsent();
  ringside::collectives::set_up_data_socket(connection.socket);
  CHECK(connection.congestion_control() == before);
  CHECK(connection.most_unsent() == unsent);
}
