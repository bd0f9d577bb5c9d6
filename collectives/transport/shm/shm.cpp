#include "collectives/transport/shm/shm.hpp"

#include <bit>
#include <cstring>
#include <new>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collectives/bootstrap/rendezvous.hpp"
#include "collectives/diagnostics/control_channel.hpp"
#include "collectives/one_sided/protocol.hpp"
#include "collectives/transport/shm/shm_meeting.hpp"
#include "collectives/transport/spin_then_yield.hpp"

namespace ringside::collectives {
namespace {

using one_sided::Channel;
using one_sided::Doorbell;
using one_sided::Flag;
using one_sided::HostMemory;
using one_sided::Number;

// At the beginning of every segment: what concerns its owner as a whole.
struct Hall {
  Doorbell doorbell;
  Flag gave_up;  // not 0: some rank has given up, and the lifeline tells which and why
};

// At the beginning of every slot; the payload follows.
struct alignas(128) SlotHeader {
  MessageHeader message;
};
static_assert(sizeof(SlotHeader) == 128);

// One end of a lane.
class LaneEnd {
 public:
  LaneEnd() = default;
  LaneEnd(std::byte* memory, const ShmLayout& layout)
      : lane_(reinterpret_cast<Channel*>(memory)),
        slots_(memory + sizeof(Channel)),
        stride_(sizeof(SlotHeader) + layout.slot_bytes),
        count_(layout.slots) {}

  static std::size_t bytes(const ShmLayout& layout) {
    return sizeof(Channel) + layout.slots * (sizeof(SlotHeader) + layout.slot_bytes);
  }

  Number next = 1;  // the message that this side writes, or reads, next

  bool may_write() const { return one_sided::slot_is_free<HostMemory>(*lane_, next, count_); }
  bool may_read() const { return one_sided::has_arrived<HostMemory>(*lane_, next); }
  void publish() { one_sided::publish<HostMemory>(*lane_, next++); }
  void free_slot() { one_sided::free_slot<HostMemory>(*lane_, next++); }

  SlotHeader& header() const { return *reinterpret_cast<SlotHeader*>(slot()); }
  std::byte* payload() const { return slot() + sizeof(SlotHeader); }

 private:
  std::byte* slot() const { return slots_ + one_sided::slot_of(next, count_) * stride_; }

  Channel* lane_ = nullptr;
  std::byte* slots_ = nullptr;
  std::size_t stride_ = 0;
  Number count_ = 0;
};

// Where the lane from `from` to `to` lies in the segment of `to`.
std::byte* lane_memory(const SharedWorld& world, int from, int to, const ShmLayout& layout) {
  return world.segments[to].data() + sizeof(Hall) +
         static_cast<std::size_t>(from < to ? from : from - 1) * LaneEnd::bytes(layout);
}

void futex_wait(const Number& word, Number value, Seconds at_most) {
  const auto nanoseconds = static_cast<long>(at_most.count() * 1e9);
  const timespec limit{nanoseconds / 1000000000, nanoseconds % 1000000000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

void futex_wake(const Number& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

class ShmTransport final : public Transport {
 public:
  ShmTransport(const RankInfo& rank_info, Mesh mesh, SharedWorld world, const ShmLayout& layout,
               MakeTransport again)
      : Transport(rank_info.rank, rank_info.size),
        founder_(rank_info, mesh.addresses[rank_info.rank], std::move(again)),
        io_(std::move(mesh.io)),
        world_(std::move(world)),
        layout_(layout),
        lifeline_(rank_info.rank, std::move(mesh.lifelines), history()),
        job_(job_number(rank_info.job_key)),
        to_(rank_info.size),
        from_(rank_info.size) {
    for (int r = 0; r < size(); ++r)
      if (r != rank()) {
        to_[r] = LaneEnd(lane_memory(world_, rank(), r, layout), layout);
        from_[r] = LaneEnd(lane_memory(world_, r, rank(), layout), layout);
      }
    outgoing_.reserve(layout.slots);
  }

  std::string_view name() const override { return "shm"; }
  std::uint32_t job() const override { return job_; }
  int window() const override { return static_cast<int>(layout_.slots); }
  std::size_t slice_bytes() const override { return 128 * 1024; }  // a slot of the usual size

  void start_send(int peer, const MessageHeader& header,
                  std::span<const std::byte> payload) override {
    outgoing_.push_back({peer, header, payload});
    fill_slots();
  }

  void post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) override {
    incoming_ = {peer, expected, into};
  }

  std::optional<Completion> wait(const Deadline& deadline) override {
    std::optional<Completion> done;
    for (;;) {
      if ((done = take_completion())) return done;
      if (look_.until([&] { return (done = take_completion()).has_value() || has_given_up(); },
                      quick_looks) &&
          done)
        return done;
      if (has_given_up()) lifeline_.listen();
      if (deadline.expired()) return std::nullopt;
      sleep(deadline);
    }
  }

  void release() override {
    if (!in_hand_) return;
    in_hand_ = false;
    free_slot();
  }

  void abort(const RankFailure& cause) noexcept override {
    lifeline_.give_up(cause);
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      HostMemory::store_release(hall(r).gave_up.value, 1);
      wake(r);
    }
  }

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
  struct Outgoing {
    int peer;
    MessageHeader header;
    std::span<const std::byte> payload;
    std::size_t done = 0;      // bytes that are in slots
    bool handed_over = false;  // all of them, and the header
  };
  struct Incoming {
    int peer = -1;  // -1: none
    MessageHeader expected;
    std::span<std::byte> into;
    std::size_t done = 0;
  };

  static constexpr int quick_looks = 32;
  static constexpr Seconds longest_sleep{0.05};

  Hall& hall(int r) const { return *reinterpret_cast<Hall*>(world_.segments[r].data()); }

  // Some rank has: the lifeline tells which and why.
  bool has_given_up() const { return HostMemory::load_acquire(hall(rank()).gave_up.value) != 0; }

  void wake(int peer) {
    Doorbell& doorbell = hall(peer).doorbell;
    if (one_sided::must_wake<HostMemory>(doorbell)) futex_wake(doorbell.asleep.value);
  }

  std::optional<Completion> take_completion() {
    fill_slots();
    if (!outgoing_.empty() && outgoing_.front().handed_over) {
      outgoing_.erase(outgoing_.begin());
      return Completion{Completion::sent, {}};
    }
    while (incoming_.peer >= 0 && !in_hand_ && from_[incoming_.peer].may_read())
      if (auto done = take_piece()) return done;
    return std::nullopt;
  }

  // Hands over as much of what is to be sent as there are free slots for.
  void fill_slots() {
    for (Outgoing& message : outgoing_)
      while (!message.handed_over) {
        if (!to_[message.peer].may_write()) return;
        put_piece(message);
      }
  }

  void put_piece(Outgoing& message) {
    LaneEnd& lane = to_[message.peer];
    const auto rest = message.payload.subspan(message.done);
    const auto piece = rest.first(std::min<std::size_t>(rest.size(), layout_.slot_bytes));
    lane.header() = {message.header};
    if (!piece.empty()) std::memcpy(lane.payload(), piece.data(), piece.size());
    message.done += piece.size();
    message.handed_over = message.done == message.payload.size();
    lane.publish();
    wake(message.peer);
  }

  // Takes the piece that has come: the whole message, most often, which is then read where it lies.
  std::optional<Completion> take_piece() {
    const LaneEnd& lane = from_[incoming_.peer];
    if (incoming_.done == 0)
      check_message(incoming_.expected, lane.header().message, rank(), incoming_.peer);
    const std::size_t bytes = incoming_.expected.bytes, rest = bytes - incoming_.done;
    const std::span<const std::byte> piece(lane.payload(),
                                           std::min<std::size_t>(rest, layout_.slot_bytes));
    if (piece.size() == bytes && incoming_.into.empty()) {
      in_hand_ = true;
      return Completion{Completion::received, piece};
    }
    if (incoming_.into.empty()) {
      if (scratch_.size() < bytes) scratch_.resize(bytes);
      incoming_.into = std::span(scratch_.data(), bytes);
    }
    if (!piece.empty())
      std::memcpy(incoming_.into.data() + incoming_.done, piece.data(), piece.size());
    incoming_.done += piece.size();
    if (incoming_.done < bytes) {
      free_slot_of(incoming_.peer);
      return std::nullopt;
    }
    free_slot();
    return Completion{Completion::received, incoming_.into};
  }

  void free_slot() { free_slot_of(std::exchange(incoming_.peer, -1)); }

  void free_slot_of(int peer) {
    from_[peer].free_slot();
    wake(peer);
  }

  bool can_hand_over() const {
    for (const Outgoing& message : outgoing_)
      if (!message.handed_over) return to_[message.peer].may_write();
    return false;
  }

  // Whether take_completion() would get on.
  bool could_move() const {
    const bool sends = !outgoing_.empty() && (outgoing_.front().handed_over || can_hand_over());
    const bool receives = incoming_.peer >= 0 && !in_hand_ && from_[incoming_.peer].may_read();
    return sends || receives || has_given_up();
  }

  // Until somebody rings, for 50 ms at most; then listens to the lifelines.
  void sleep(const Deadline& deadline) {
    Doorbell& doorbell = hall(rank()).doorbell;
    one_sided::about_to_sleep<HostMemory>(doorbell);
    if (!could_move())
      futex_wait(doorbell.asleep.value, 1, std::min(deadline.remaining(), longest_sleep));
    one_sided::woken<HostMemory>(doorbell);
    if (could_move()) return;
    lifeline_.listen_for(0);
    for (const int peer :
         {outgoing_.empty() ? -1 : outgoing_.front().peer, in_hand_ ? -1 : incoming_.peer})
      if (peer >= 0 && lifeline_.has_left(peer) && !could_move())
        throw RankFailure(
            peer, fmt::format("rank {} has left the group, and rank {} still waits for it", peer,
                              rank()));
  }

  Founder founder_;
  std::unique_ptr<boost::asio::io_context> io_;  // outlives the lifeline's sockets
  SharedWorld world_;
  ShmLayout layout_;
  Lifeline lifeline_;
  std::uint32_t job_;
  std::vector<LaneEnd> to_, from_;  // [peer]
  std::vector<Outgoing> outgoing_;  // window() at most
  Incoming incoming_;
  Look look_;
  bool in_hand_ = false;            // the executor reads the slot of the last message
  std::vector<std::byte> scratch_;  // for a message in pieces that nobody has named a place for
};

ShmLayout layout_for(const RankInfo& rank_info, const ShmOptions& options) {
  require(std::has_single_bit(options.slots) && options.slot_bytes >= 1,
          "shared memory needs a power of two of slots, not {} of {} bytes", options.slots,
          options.slot_bytes);
  const auto peers = static_cast<std::uint64_t>(std::max(1, rank_info.size - 1));
  const std::uint64_t fits =
      std::max<std::uint64_t>(4096, options.segment_bytes / peers / options.slots);
  const std::uint64_t slot_bytes = std::min<std::uint64_t>(options.slot_bytes, fits);
  return {static_cast<std::uint32_t>((slot_bytes + 127) / 128 * 128), options.slots};
}

}  // namespace

std::unique_ptr<Transport> make_shm(const RankInfo& rank_info, Mesh& mesh,
                                    const ShmOptions& options, MakeTransport again) {
  const ShmLayout layout = layout_for(rank_info, options);
  SharedWorld world = share_segments(
      rank_info, mesh, layout,
      sizeof(Hall) + static_cast<std::size_t>(rank_info.size - 1) * LaneEnd::bytes(layout));
  mesh.data.clear();
  return std::make_unique<ShmTransport>(rank_info, std::move(mesh), std::move(world), layout,
                                        std::move(again));
}

static std::unique_ptr<Transport> make_shm_again(const RankInfo& rank_info, Mesh mesh,
                                                 const ShmOptions& options) {
  return make_shm(rank_info, mesh, options, [options](const RankInfo& p, Mesh m) {
    return make_shm_again(p, std::move(m), options);
  });
}

std::unique_ptr<Transport> connect_shm(const RankInfo& rank_info, const ShmOptions& options) {
  layout_for(rank_info,
             options);  // what is wrong with the options is told before anybody is waited for
  return make_shm_again(rank_info, meet(rank_info), options);
}

}  // namespace ringside::collectives
