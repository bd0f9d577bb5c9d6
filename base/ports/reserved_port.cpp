#include "base/ports/reserved_port.hpp"

#include <cerrno>
#include <cstring>

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/error.hpp"

namespace ringside {

ReservedPort::ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int yes = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound = socket_.is_open() &&
                     ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                     ::bind(socket_.get(), generic, size) == 0 &&
                     ::getsockname(socket_.get(), generic, &size) == 0;
  require(bound, "cannot find a free port on 127.0.0.1 for rank 0: {}; choose one with MASTER_PORT",
          std::strerror(errno));
  number_ = ntohs(address.sin_port);
}

}  // namespace ringside
