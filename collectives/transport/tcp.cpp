#include "collectives/transport/tcp.hpp"

#include <array>
#include <cstring>
#include <deque>

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>

#include "collectives/bootstrap/rendezvous.hpp"
#include "collectives/diagnostics/control_channel.hpp"
#include "collectives/transport/spin_then_yield.hpp"

namespace ringside::collectives {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// One message, under way: first the header, then the payload, `done` bytes of both together so far.
template <class Buffer, class Byte>
struct Parcel {
  int peer = -1;  // -1: none
  MessageHeader header;
  std::span<Byte> payload;
  std::size_t done = 0;

  bool complete() const { return done == sizeof header + payload.size(); }

  // What is still to be moved, as one or two pieces, so that header and payload go in one system
  // call.
  std::array<Buffer, 2> rest(std::span<Byte> header_bytes) const {
    const std::size_t of_header = std::min(done, header_bytes.size()),
                      of_payload = done - of_header;
    return {Buffer(header_bytes.data() + of_header, header_bytes.size() - of_header),
            Buffer(payload.data() + of_payload, payload.size() - of_payload)};
  }
};

using Outgoing = Parcel<asio::const_buffer, const std::byte>;
using Incoming = Parcel<asio::mutable_buffer, std::byte>;

// How much a socket within one host keeps unsent: a slice.
constexpr int most_unsent = 256 * 1024;

constexpr std::size_t most_for_a_look = 64 * 1024;

// The address of one end, without its port. Empty if there is none.
std::string address_of(int (*ask)(int, sockaddr*, socklen_t*), int socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  char host[NI_MAXHOST] = {};
  if (ask(socket, address, &length) != 0 ||
      ::getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return host;
}

// To the nanosecond, which poll(2) does not know: a message behind a slowed link is due in
// microseconds.
timespec remaining(const Deadline& deadline) {
  const double seconds = std::min(deadline.remaining().count(), 1e6);
  const auto whole = static_cast<std::time_t>(seconds);
  return {whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(const RankInfo& rank_info, Mesh mesh, MakeTransport again)
      : Transport(rank_info.rank, rank_info.size),
        founder_(rank_info, mesh.addresses[rank_info.rank], std::move(again)),
        io_(std::move(mesh.io)),
        data_(std::move(mesh.data)),
        lifeline_(rank_info.rank, std::move(mesh.lifelines), history()),
        job_(job_number(rank_info.job_key)) {
    for (auto& socket : data_)
      if (socket) {
        socket->non_blocking(true);
        set_up_data_socket(socket->native_handle());
      }
  }

  std::string_view name() const override { return "tcp"; }
  std::uint32_t job() const override { return job_; }
  int window() const override { return 1; }

  void start_send(int peer, const MessageHeader& header,
                  std::span<const std::byte> payload) override {
    outgoing_ = {peer, header, payload, 0};
  }

  void post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) override {
    if (into.empty() && scratch_.size() < expected.bytes) scratch_.resize(expected.bytes);
    incoming_ = {peer, expected, into.empty() ? std::span(scratch_.data(), expected.bytes) : into,
                 0};
  }

  std::optional<Completion> wait(const Deadline& deadline) override {
    for (;;) {
      if (write_some()) return Completion{Completion::sent, {}};
      if (read_some())
        return Completion{Completion::received, std::exchange(incoming_, {}).payload};
      if (worth_a_look() && look_.until([this] { return read_some(); }))
        return Completion{Completion::received, std::exchange(incoming_, {}).payload};
      if (!sleep_until_ready(deadline)) return std::nullopt;
    }
  }

  void release() override {}

  void abort(const RankFailure& cause) noexcept override { lifeline_.give_up(cause); }

  void tell_position(const Position& mine) override { lifeline_.tell_position(mine); }

  Contact open_door() override { return founder_.open_door(); }

  std::unique_ptr<Transport> found(const std::string& name, int rank,
                                   const std::vector<Contact>& members) override {
    return founder_.found(name, rank, members);
  }

  std::vector<Position> positions(Seconds patience) override {
    return lifeline_.positions(patience);
  }

 private:
  // Long messages come in many pieces, and a rank that looks for each takes time from the one that
  // sends them.
  bool worth_a_look() const {
    return outgoing_.peer < 0 && incoming_.peer >= 0 && incoming_.payload.size() <= most_for_a_look;
  }

  // True when the message is completely in the hands of the kernel.
  bool write_some() {
    if (outgoing_.peer < 0) return false;
    error_code error;
    outgoing_.done += data_[outgoing_.peer]->write_some(
        outgoing_.rest(std::as_bytes(std::span(&outgoing_.header, 1))), error);
    if (error && error != asio::error::would_block)
      lifeline_.explain(outgoing_.peer, error.message());
    if (!outgoing_.complete()) return false;
    outgoing_.peer = -1;
    return true;
  }

  bool read_some() {
    if (incoming_.peer < 0) return false;
    error_code error;
    const bool header_was_there = incoming_.done >= sizeof(MessageHeader);
    incoming_.done += data_[incoming_.peer]->read_some(
        incoming_.rest(std::as_writable_bytes(std::span(&arrived_, 1))), error);
    if (!header_was_there && incoming_.done >= sizeof(MessageHeader))
      check_message(incoming_.header, arrived_, rank(), incoming_.peer);
    if (error && error != asio::error::would_block)
      lifeline_.explain(incoming_.peer, error.message());
    return incoming_.complete();
  }

  bool sleep_until_ready(const Deadline& deadline) {
    std::array<pollfd, 3> watched;
    std::size_t n = 0;
    watched[n++] = {lifeline_.news(), POLLIN, 0};
    if (outgoing_.peer >= 0) watched[n++] = {data_[outgoing_.peer]->native_handle(), POLLOUT, 0};
    if (incoming_.peer >= 0) watched[n++] = {data_[incoming_.peer]->native_handle(), POLLIN, 0};
    const timespec patience = remaining(deadline);
    const int ready = ::ppoll(watched.data(), n, &patience, nullptr);
    if (ready < 0 && errno == EINTR) return true;
    if (watched[0].revents != 0) lifeline_.listen();
    return ready != 0 || !deadline.expired();
  }

  Founder founder_;
  std::unique_ptr<asio::io_context> io_;  // outlives the sockets below
  std::vector<std::optional<Mesh::Socket>> data_;
  Lifeline lifeline_;
  std::uint32_t job_;
  Look look_;
  Outgoing outgoing_;
  Incoming incoming_;
  MessageHeader arrived_;
  std::vector<std::byte> scratch_;  // one slice, for payloads that nobody has named a place for
};

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

std::unique_ptr<Transport> make_tcp(const RankInfo& rank_info, Mesh mesh, MakeTransport again) {
  return std::make_unique<TcpTransport>(rank_info, std::move(mesh), std::move(again));
}

static std::unique_ptr<Transport> make_tcp_again(const RankInfo& rank_info, Mesh mesh) {
  return make_tcp(rank_info, std::move(mesh), make_tcp_again);
}

std::unique_ptr<Transport> connect_tcp(const RankInfo& rank_info) {
  return make_tcp_again(rank_info, meet(rank_info));
}

}  // namespace ringside::collectives
