#include "collectives/transport/socket_options.hpp"

#include <cstring>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace ringside::collectives {
namespace {

constexpr int most_unsent = 256 * 1024;  // bytes; one slice

// The address of one end of the socket, without its port; empty if there is none. `query` is
// getsockname or getpeername.
std::string address_of(int (*query)(int, sockaddr*, socklen_t*), int socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  char host[NI_MAXHOST] = {};
  if (query(socket, address, &length) != 0 ||
      ::getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return host;
}

}  // namespace

std::string set_up_data_socket(int socket) {
  const std::string here = address_of(::getsockname, socket);
  if (!here.empty() && here == address_of(::getpeername, socket)) {
    ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    ::setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most_unsent, sizeof most_unsent);
  }
  char name[16] = {};
  socklen_t length = sizeof name;
  return ::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0
             ? std::string(name, ::strnlen(name, length))
             : "unknown";
}

}  // namespace ringside::collectives
