#include "base/ports/reserved_port.hpp"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

using ringside::FileDescriptor;
using ringside::ReservedPort;

namespace {

// A socket that listens on `port` as rank 0 does; not open if that fails.
FileDescriptor listen_on(int port) {
  FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<in_port_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool listening =
      ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      ::listen(listener.get(), 8) == 0;
  return listening ? std::move(listener) : FileDescriptor();
}

}  // namespace

TEST_CASE("rank 0 can listen on the port that is reserved for it") {
  const ReservedPort reserved;
  CHECK(reserved.number() > 0);
  CHECK(listen_on(reserved.number()).is_open());
}

TEST_CASE("two jobs reserve two ports") {
  const ReservedPort first;
  const ReservedPort second;
  CHECK(first.number() != second.number());
}
