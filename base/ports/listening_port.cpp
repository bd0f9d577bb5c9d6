#include "base/ports/listening_port.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/error.hpp"
#include "base/system/fork.hpp"

namespace ringside {
namespace {

struct LocalAddress {
  sockaddr_in ipv4{};
  socklen_t size = sizeof ipv4;
  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&ipv4); }
};

FileDescriptor bound_to(LocalAddress& address) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool bound = socket.is_open() && ::bind(socket.get(), address.generic(), address.size) == 0;
  return bound ? std::move(socket) : FileDescriptor();
}

// Accepted connections keep the port in use, for a minute after their end. So that listen() may
// follow them, they need SO_REUSEADDR, which they take over from the socket that listens. While
// that socket does not listen, it must not have it: another one that has it could take the port.
void allow_reuse(const FileDescriptor& socket, int yes) {
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

}  // namespace

// While the socket does not listen, between two rendezvous, the kernel keeps a port for it only if
// bind() named the port. So the first socket finds a free port, and the second takes it.
ListeningPort::ListeningPort() {
  for (int attempt = 0; attempt < 100 && !socket_.is_open(); ++attempt) {
    LocalAddress address;
    address.ipv4.sin_family = AF_INET;
    address.ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    FileDescriptor finder = bound_to(address);
    if (!finder.is_open() || ::getsockname(finder.get(), address.generic(), &address.size) != 0)
      break;
    finder.close();
    number_ = ntohs(address.ipv4.sin_port);
    socket_ = bound_to(address);
  }
  require(socket_.is_open() && ::listen(socket_.get(), SOMAXCONN) == 0,
          "cannot listen on a free port of 127.0.0.1 for rank 0: {}; choose one with MASTER_PORT",
          std::strerror(errno));
  allow_reuse(socket_, true);
}

FileDescriptor listen_with(int descriptor, int port) {
  LocalAddress address;
  if (descriptor < 0 || ::getsockname(descriptor, address.generic(), &address.size) != 0 ||
      address.ipv4.sin_family != AF_INET || ntohs(address.ipv4.sin_port) != port)
    return {};
  FileDescriptor socket(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  keep_from_children(socket.get());
  allow_reuse(socket, true);
  return ::listen(socket.get(), SOMAXCONN) == 0 ? std::move(socket) : FileDescriptor();
}

void stop_listening(const FileDescriptor& socket) {
  allow_reuse(socket, false);
  ::shutdown(socket.get(), SHUT_RDWR);
}

}  // namespace ringside
