#include "bench/backends/machine_limits.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <thread>

#include <poll.h>
#include <sys/socket.h>

#include "collectives/algorithms/chunks.hpp"
#include "collectives/bootstrap/rendezvous/rendezvous.hpp"
#include "collectives/group_options.hpp"

namespace ringside::cli {

using namespace collectives;

namespace {

// How often a chunk of the buffer is sent from each rank to the next.
int chunk_transfers(Collective collective, int ranks) {
  if (collective == Collective::all_reduce) return 2 * (ranks - 1);
  if (collective == Collective::broadcast || collective == Collective::reduce)
    return ranks;  // along a chain, the whole buffer
  return collective == Collective::barrier ? 0 : ranks - 1;
}

// The bytes that a rank sends and receives. It may send `head` bytes at once; it sends each further
// byte only after it has received one.
struct Relay {
  std::size_t to_send = 0, to_receive = 0, head = 0;
};

Relay relay_of(const Call& call, int rank, int ranks) {
  const std::size_t bytes = call.count * size_of(call.type);
  const bool chain =
      call.collective == Collective::broadcast || call.collective == Collective::reduce;
  if (chain) return {rank == ranks - 1 ? 0 : bytes, rank == 0 ? 0 : bytes, rank == 0 ? bytes : 0};
  const std::size_t chunk = Chunks::even(bytes, ranks).size(0);
  const std::size_t all = chunk * static_cast<std::size_t>(chunk_transfers(call.collective, ranks));
  return {all, all, chunk};
}

class BareRing final : public Backend {
 public:
  explicit BareRing(const RankInfo& rank_info)
      : rank_(rank_info.rank),
        size_(rank_info.size),
        timeout_(group_options_from_environment().executor.timeout),
        mesh_(connect_mesh(rank_info)) {
    if (size_ == 1) return;
    for (auto& socket : mesh_.data)
      if (socket) set_up_data_socket(*socket);
    right_ = mesh_.data[static_cast<std::size_t>((rank_ + 1) % size_)]->native_handle();
    left_ = mesh_.data[static_cast<std::size_t>((rank_ + size_ - 1) % size_)]->native_handle();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "bare ring"; }
  void abort(const std::string&) noexcept override { mesh_.data.clear(); }

  // The output is a ring buffer: bytes are forwarded from where they were received, while they are
  // in the cache.
  void run(const Call& call, const void*, void* output, const BlockBegins&) override {
    const Relay relay = size_ == 1 ? Relay{} : relay_of(call, rank_, size_);
    buffer_ = {static_cast<std::byte*>(output), call.count * size_of(call.type)};
    std::size_t sent = 0, received = 0;
    while (sent < relay.to_send || received < relay.to_receive) {
      const std::size_t may_send = std::min(relay.to_send, relay.head + received) - sent;
      const std::size_t wrote = may_send > 0 ? move(::send, right_, sent + received_ahead_of(relay),
                                                    may_send, MSG_NOSIGNAL)
                                             : 0;
      const std::size_t read = received < relay.to_receive
                                   ? move(::recv, left_, received, relay.to_receive - received, 0)
                                   : 0;
      sent += wrote, received += read;
      if (wrote == 0 && read == 0)
        sleep(std::min(relay.to_send, relay.head + received) > sent, received < relay.to_receive);
    }
  }

 private:
  // The head precedes the received bytes: byte head + i to send is byte i received.
  std::size_t received_ahead_of(const Relay& relay) const {
    return buffer_.size() - relay.head % buffer_.size();
  }

  // Sends or receives without blocking, at most to the end of the buffer.
  template <class Call_, class Flags>
  std::size_t move(Call_ call, int socket, std::size_t at, std::size_t bytes, Flags flags) {
    const std::size_t begin = at % buffer_.size(), length = std::min(bytes, buffer_.size() - begin);
    const ssize_t moved = call(socket, buffer_.data() + begin, length, flags | MSG_DONTWAIT);
    if (moved > 0) return static_cast<std::size_t>(moved);
    require(moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR),
            "the bare ring of rank {} broke: {}", rank_,
            moved == 0 ? "its neighbour has closed the connection" : std::strerror(errno));
    return 0;
  }

  void sleep(bool sending, bool receiving) {
    pollfd events[2] = {{receiving ? left_ : -1, POLLIN, 0}, {sending ? right_ : -1, POLLOUT, 0}};
    const timespec patience = to_timespec(timeout_);
    if (::ppoll(events, 2, &patience, nullptr) != 0) return;
    fail("the bare ring of rank {}: {} for {:.1f} s (RINGSIDE_TIMEOUT)", rank_,
         receiving ? fmt::format("nothing came from rank {}", (rank_ + size_ - 1) % size_)
                   : fmt::format("rank {} took nothing", (rank_ + 1) % size_),
         timeout_.count());
  }

  int rank_, size_;
  Seconds timeout_;  // how long it waits without any progress
  Mesh mesh_;
  int left_ = -1, right_ = -1;
  std::span<std::byte> buffer_;
};

class BareCopy final : public Backend {
 public:
  BareCopy(int rank, int size, PollingBarrier& barrier)
      : rank_(rank), size_(size), barrier_(barrier) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "bare copy"; }
  void abort(const std::string&) noexcept override {}

  void run(const Call& call, const void* input, void* output, const BlockBegins&) override {
    const Chunks chunks = Chunks::even(call.count * size_of(call.type), size_);
    for (int transfer = 0; transfer < chunk_transfers(call.collective, size_); ++transfer) {
      // In place the input is the output, so a chunk comes from where another one lies.
      const int from = (rank_ + transfer) % size_, to = (from + 1) % size_;
      std::memcpy(static_cast<std::byte*>(output) + chunks.begin(to),
                  static_cast<const std::byte*>(input) + chunks.begin(from),
                  std::min(chunks.size(from), chunks.size(to)));
    }
    barrier_.arrive_and_wait();
  }

 private:
  int rank_, size_;
  PollingBarrier& barrier_;
};

}  // namespace

void PollingBarrier::arrive_and_wait() {
  const int round = rounds_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks_) {
    arrived_.store(0, std::memory_order_relaxed);
    rounds_.store(round + 1, std::memory_order_release);
  }
  while (rounds_.load(std::memory_order_acquire) == round) std::this_thread::yield();
}

std::unique_ptr<Backend> make_bare_ring(const RankInfo& rank_info) {
  return std::make_unique<BareRing>(rank_info);
}

std::unique_ptr<Backend> make_bare_copy(int rank, int size, PollingBarrier& barrier) {
  return std::make_unique<BareCopy>(rank, size, barrier);
}

}  // namespace ringside::cli
