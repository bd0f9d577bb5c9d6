#include "collectives/transport/tcp.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>

#include "collectives/transport/spin_then_yield.hpp"

namespace ringside::collectives {
namespace {

// A message in flight: the header, then the payload. `done` counts bytes of both together.
struct InFlight {
  int peer = -1;  // -1: none
  MessageHeader header;
  std::span<std::byte> payload{};
  std::size_t done = 0;
  std::array<iovec, 2> pieces{};

  bool complete() const { return done == sizeof header + payload.size(); }

  // What has not moved yet, for one system call: the rest of the header and of the payload.
  msghdr rest() {
    const std::size_t of_header = std::min(done, sizeof header), of_payload = done - of_header;
    pieces = {iovec{reinterpret_cast<std::byte*>(&header) + of_header, sizeof header - of_header},
              iovec{payload.data() + of_payload, payload.size() - of_payload}};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    return message;
  }
};

// A rank polls for a short message before it sleeps. It does not for a long one: that comes in many
// pieces, and polling takes time from the rank that sends them.
constexpr std::size_t longest_polled = 64 * 1024;

class TcpTransport final : public Transport {
 public:
  TcpTransport(int rank, std::uint32_t job, std::vector<FileDescriptor> sockets)
      : Transport(rank, static_cast<int>(sockets.size()), job), sockets_(std::move(sockets)) {}

  std::string_view name() const override { return "tcp"; }
  int window() const override { return 1; }

  void post_send(int peer, const MessageHeader& header,
                 std::span<const std::byte> payload) override {
    outgoing_ = {peer, header, {const_cast<std::byte*>(payload.data()), payload.size()}, 0};
  }

  void post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) override {
    if (into.empty()) {
      if (scratch_.size() < expected.bytes) scratch_.resize(expected.bytes);
      into = std::span(scratch_).first(expected.bytes);
    }
    expected_ = expected;
    incoming_ = {peer, {}, into, 0};
  }

  std::optional<Completion> wait(const Deadline& deadline) override {
    for (;;) {
      if (write_some()) return Completion{Completion::sent, {}};
      if (read_some() || (polls() && poll_.until(deadline, [this] { return read_some(); }))) {
        incoming_.peer = -1;
        return Completion{Completion::received, incoming_.payload};
      }
      if (deadline.expired()) return std::nullopt;
      sleep_until_ready(deadline);
    }
  }

  void release() override {}

 private:
  bool polls() const {
    return outgoing_.peer < 0 && incoming_.peer >= 0 && incoming_.payload.size() <= longest_polled;
  }

  // True when the kernel has taken the whole message.
  bool write_some() {
    if (outgoing_.peer < 0) return false;
    const msghdr message = outgoing_.rest();
    const auto n = ::sendmsg(fd(outgoing_), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    outgoing_.done += bytes_moved(n, outgoing_.peer);
    if (!outgoing_.complete()) return false;
    outgoing_.peer = -1;
    return true;
  }

  // True when the whole message has arrived.
  bool read_some() {
    if (incoming_.peer < 0) return false;
    const bool had_header = incoming_.done >= sizeof(MessageHeader);
    msghdr message = incoming_.rest();
    const auto n = ::recvmsg(fd(incoming_), &message, MSG_DONTWAIT);
    if (n == 0) throw ConnectionBroken(incoming_.peer, "End of file");
    incoming_.done += bytes_moved(n, incoming_.peer);
    if (!had_header && incoming_.done >= sizeof(MessageHeader))
      check_message(expected_, incoming_.header, rank(), incoming_.peer);
    return incoming_.complete();
  }

  static std::size_t bytes_moved(ssize_t n, int peer) {
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
    throw ConnectionBroken(peer, std::strerror(errno));
  }

  void sleep_until_ready(const Deadline& deadline) const {
    // ppoll(2) ignores a descriptor of -1, and takes nanoseconds: an emulated link needs them.
    std::array<pollfd, 2> watched{pollfd{fd(outgoing_), POLLOUT, 0},
                                  pollfd{fd(incoming_), POLLIN, 0}};
    const timespec patience = to_timespec(deadline.remaining());
    ::ppoll(watched.data(), watched.size(), &patience, nullptr);
  }

  int fd(const InFlight& message) const {
    return message.peer < 0 ? -1 : sockets_[message.peer].get();
  }

  std::vector<FileDescriptor> sockets_;  // [rank]
  InFlight outgoing_, incoming_;
  MessageHeader expected_;
  std::vector<std::byte> scratch_;  // for a payload without a place of its own
  SpinThenYield poll_;
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(int rank, std::uint32_t job,
                                              std::vector<FileDescriptor> sockets) {
  return std::make_unique<TcpTransport>(rank, job, std::move(sockets));
}

}  // namespace ringside::collectives
