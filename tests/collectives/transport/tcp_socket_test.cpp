// The options of a data socket depend on its route.
#include <string>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/transport/socket_options.hpp"

namespace {

sockaddr_in address_of(const char* host, in_port_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port;
  ::inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

// A connection from `from` to 127.0.0.1.
struct Connection {
  explicit Connection(const char* from) {
    auto here = address_of("127.0.0.1", 0), there = address_of(from, 0);
    socklen_t length = sizeof here;
    REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&here), sizeof here) == 0);
    REQUIRE(::listen(listener, 1) == 0);
    REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&here), &length) == 0);
    REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&there), sizeof there) == 0);
    REQUIRE(::connect(socket, reinterpret_cast<sockaddr*>(&here), sizeof here) == 0);
  }
  ~Connection() { ::close(listener), ::close(socket); }

  std::string congestion_control() const {
    char name[16] = {};
    socklen_t length = sizeof name;
    REQUIRE(::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0);
    return name;
  }
  int most_unsent() const {
    int bytes = -1;
    socklen_t length = sizeof bytes;
    REQUIRE(::getsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, &length) == 0);
    return bytes;
  }

  int listener = ::socket(AF_INET, SOCK_STREAM, 0), socket = ::socket(AF_INET, SOCK_STREAM, 0);
};

}  // namespace

TEST_CASE("a socket within one host uses reno and keeps little unsent") {
  const Connection connection("127.0.0.1");
  CHECK(ringside::collectives::set_up_data_socket(connection.socket) == "reno");
  CHECK(connection.congestion_control() == "reno");
  CHECK(connection.most_unsent() == 256 * 1024);
}

TEST_CASE("a socket between two addresses keeps the system's defaults") {
  const Connection connection("127.0.0.2");
  const auto before = connection.congestion_control();
  const int unsent = connection.most_unsent();
  CHECK(ringside::collectives::set_up_data_socket(connection.socket) == before);
  CHECK(connection.congestion_control() == before);
  CHECK(connection.most_unsent() == unsent);
}
