#include "collectives/diagnostics/socket_control_channel.hpp"

#include <array>
#include <cerrno>

#include <poll.h>
#include <sys/socket.h>

namespace ringside::collectives {
namespace {

class SocketControlChannel final : public ControlChannel {
 public:
  SocketControlChannel(int rank, std::vector<FileDescriptor> sockets,
                       std::vector<std::int64_t> processes)
      : ControlChannel(rank, static_cast<int>(sockets.size()), std::move(processes)),
        connections_(sockets.size()) {
    for (std::size_t r = 0; r < sockets.size(); ++r) connections_[r].socket = std::move(sockets[r]);
  }
  ~SocketControlChannel() override { leave(); }

 private:
  struct Connection {
    FileDescriptor socket;  // closed when the peer has closed its end
    ControlMessageReader reader;
    std::string unsent;  // the rest of messages that did not fit into the kernel's buffer
  };

  // A peer that is stopped for hours, in a debugger for example, does not listen, and the kernel's
  // buffer fills up. Then positions are dropped: the next one is more useful than an old one.
  bool send(int peer, const ControlMessage& message) noexcept override {
    Connection& connection = connections_[peer];
    if (!connection.socket.is_open()) return false;
    flush(connection);
    const bool soon_outdated =
        message.kind == ControlMessage::position || message.kind == ControlMessage::waits;
    if (!connection.unsent.empty() && soon_outdated) return false;
    connection.unsent += to_bytes(message);
    flush(connection);
    return true;
  }

  // Sends what the kernel takes. It may take a part although it has space for more, and a goodbye
  // is not flushed a second time.
  static void flush(Connection& connection) noexcept {
    std::string& unsent = connection.unsent;
    for (ssize_t n = 1; n > 0 && !unsent.empty();) {
      n = ::send(connection.socket.get(), unsent.data(), unsent.size(),
                 MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) unsent.erase(0, static_cast<std::size_t>(n));
    }
  }

  void receive() override {
    std::vector<pollfd> watched;  // poll(2) ignores a descriptor of -1
    for (const Connection& connection : connections_)
      watched.push_back({connection.socket.get(), POLLIN, 0});
    if (::poll(watched.data(), watched.size(), 0) <= 0) return;
    for (int r = 0; r < size(); ++r)
      if (watched[r].revents != 0) read_all(r);
  }

  // Reads what has arrived from rank r.
  void read_all(int r) {
    Connection& connection = connections_[r];
    std::array<char, 1024> bytes;
    for (;;) {
      const auto n = ::recv(connection.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (n <= 0) break;
      connection.reader.feed({bytes.data(), static_cast<std::size_t>(n)});
      accept_messages(r);
    }
    connection.socket.close();
    lost(r);
  }

  void accept_messages(int r) {
    try {
      while (const auto message = connections_[r].reader.next()) accept(r, *message);
    } catch (const Error& invalid) {
      note_failure(r, fmt::format("rank {} sends {}", names()(r), invalid.what()));
    }
  }

  std::vector<Connection> connections_;  // [rank]
};

}  // namespace

std::unique_ptr<ControlChannel> make_socket_control_channel(int rank,
                                                            std::vector<FileDescriptor> sockets,
                                                            std::vector<std::int64_t> processes) {
  return std::make_unique<SocketControlChannel>(rank, std::move(sockets), std::move(processes));
}

}  // namespace ringside::collectives
