#include "collectives/transport/shm/shm.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collectives/one_sided/protocol.hpp"
#include "collectives/transport/shm/announcement.hpp"
#include "collectives/transport/shm/slot_writer.hpp"
#include "collectives/transport/spin_then_yield.hpp"

namespace ringside::collectives {
namespace {

using one_sided::Channel;
using one_sided::Doorbell;
using one_sided::Flag;
using one_sided::HostMemory;
using one_sided::Number;

// At the beginning of every segment.
struct SegmentHead {
  Doorbell doorbell;
  Flag left;                      // not 0: the owner has left
  Announcement announcements[2];  // of rounds with an even and with an odd number
};

// A payload of a cache's first level or less stays beside its header: its lines are few, and in a
// new place each would come from memory.
constexpr std::size_t most_in_a_slot = 8 * 1024;

struct alignas(128) Slot {
  MessageHeader message;
  std::uint32_t place;  // of a long payload, in the room
  alignas(128) std::byte payload[most_in_a_slot];
};
static_assert(sizeof(Slot) == 128 + most_in_a_slot);

std::size_t channel_bytes(const ShmLayout& layout) {
  return sizeof(Channel) + layout.slots * sizeof(Slot) + layout.room_bytes;
}

// There the room of long announcements begins: those of two rounds are read at once, and one may
// not fit before its end.
std::size_t end_of_channels(const ShmLayout& layout, int size) {
  return sizeof(SegmentHead) + static_cast<std::size_t>(size - 1) * channel_bytes(layout);
}
constexpr std::size_t announcements_in_room = 3;

constexpr std::size_t rounded(std::size_t bytes) {
  return (bytes + 127) / 128 * 128;
}

// Where the long payloads of one writer lie in a room.
//
// Ranks that take turns on a core are CROWDED. The reader's cache is then often the writer's, so a
// payload is best where one was a moment ago: each place is as long as the longest payload, and
// there are no more places than payloads under way. Otherwise payloads lie side by side and go
// round the room, which must hold one more than are under way, since one may not fit before its
// end.
class Places {
 public:
  Places() = default;
  Places(std::size_t room, std::size_t longest, std::size_t under_way, bool crowded) : end_(room) {
    if (!crowded && room >= (under_way + 1) * longest) return;
    each_ = longest;
    end_ = under_way * longest;
  }

  std::size_t next(std::size_t bytes) {
    const std::size_t taken = std::max(each_, rounded(bytes));
    if (free_from_ + taken > end_) free_from_ = 0;
    return std::exchange(free_from_, free_from_ + taken);
  }

 private:
  std::size_t end_ = 0, free_from_ = 0;
  std::size_t each_ = 0;  // 0: payloads lie side by side
};

SlotWriter writer(bool crowded) {  // whose payload its reader may read in the same cache
  return crowded ? SlotWriter::never_streams() : SlotWriter();
}

// The time of a short copy tells nothing.
void write(std::byte* into, std::span<const std::byte> payload, SlotWriter& long_ones) {
  if (payload.size() > most_in_a_slot)
    long_ones.write(into, payload);
  else if (!payload.empty())
    std::memcpy(into, payload.data(), payload.size());
}

// One side of a channel: the sender's or the receiver's.
class ChannelEnd {
 public:
  ChannelEnd() = default;
  ChannelEnd(std::byte* memory, const ShmLayout& layout, bool crowded)
      : channel_(reinterpret_cast<Channel*>(memory)),
        slots_(reinterpret_cast<Slot*>(memory + sizeof(Channel))),
        room_(memory + sizeof(Channel) + layout.slots * sizeof(Slot)),
        layout_(layout),
        places_(layout.room_bytes, layout.piece_bytes, layout.slots, crowded),
        writer_(writer(crowded)) {}

  // Looks as far ahead as it can: the receiver's counter comes from the receiver's cache.
  bool may_write() {
    if (writable_ == next_)
      while (writable_ - next_ < layout_.slots &&
             one_sided::slot_is_free<HostMemory>(*channel_, writable_, layout_.slots))
        ++writable_;
    return writable_ != next_;
  }
  bool may_read() const { return one_sided::has_arrived<HostMemory>(*channel_, next_); }
  void free_slot() { one_sided::free_slot<HostMemory>(*channel_, next_++); }

  void write(const MessageHeader& header, std::span<const std::byte> piece) {
    slot().message = header;
    if (piece.size() > most_in_a_slot)
      slot().place = static_cast<std::uint32_t>(places_.next(piece.size()));
    collectives::write(payload(piece.size()), piece, writer_);
    one_sided::publish<HostMemory>(*channel_, next_++);
  }

  const MessageHeader& header() const { return slot().message; }
  std::byte* payload(std::size_t bytes) const {
    return bytes > most_in_a_slot ? room_ + slot().place : slot().payload;
  }

 private:
  Slot& slot() const { return slots_[one_sided::slot_of(next_, layout_.slots)]; }

  Channel* channel_ = nullptr;
  Slot* slots_ = nullptr;
  std::byte* room_ = nullptr;
  ShmLayout layout_{};
  Number next_ = 1;      // the piece that this side writes, or reads, next
  Number writable_ = 1;  // the sender may write all pieces before this one
  Places places_;        // of long payloads, which the sender chooses
  SlotWriter writer_;
};

void futex_wait(const Number& word, Number value, Seconds at_most) {
  const timespec limit = to_timespec(at_most);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

void futex_wake(const Number& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

class ShmTransport final : public Transport {
 public:
  ShmTransport(int rank, std::uint32_t job, const ShmLayout& layout,
               std::vector<SharedSegment> segments, bool crowded)
      : Transport(rank, static_cast<int>(segments.size()), job),
        polls_without_yield_(crowded ? 1 : 32),
        patience_(crowded ? 200e-6 : 50e-6),
        layout_(layout),
        segments_(std::move(segments)),
        to_(segments_.size()),
        from_(segments_.size()),
        places_(announcements_in_room * layout.announced_bytes, layout.announced_bytes, 2, crowded),
        writer_(writer(crowded)) {
    for (int r = 0; r < size(); ++r)
      if (r != rank) {
        to_[r] = ChannelEnd(channel_memory(rank, r), layout, crowded);
        from_[r] = ChannelEnd(channel_memory(r, rank), layout, crowded);
      }
    outgoing_.reserve(layout.slots);
  }

  ~ShmTransport() override {
    HostMemory::store_release(head(rank()).left.value, 1);
    for (int r = 0; r < size(); ++r)
      if (r != rank()) wake(r);
  }

  std::string_view name() const override { return "shm"; }
  int window() const override { return static_cast<int>(layout_.slots); }
  std::size_t slice_bytes() const override { return ShmOptions{}.piece_bytes; }
  std::size_t announced_bytes() const override { return layout_.announced_bytes; }

  void post_send(int peer, const MessageHeader& header,
                 std::span<const std::byte> payload) override {
    outgoing_.push_back({peer, header, payload});
    fill_slots();
  }

  void post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) override {
    if (expected.announced())  // all ranks' headers are this rank's: no copy
      awaited_announcement_ = peer;
    else
      incoming_ = {peer, expected, into};
  }

  void announce(const MessageHeader& header, std::span<const Shown> shown) override {
    Announcement& mine = announcement_of(rank(), ++round_);
    mine.header = header;
    mine.fingerprint = fingerprint_of(header);
    // All ranks announce alike, so their payloads lie at the same place in all segments.
    const bool to_everybody = header.slice == MessageHeader::to_everybody;
    apart_ = to_everybody ? 0 : rounded(header.bytes);
    beside_number_ = to_everybody && header.bytes <= sizeof mine.payload;
    if (!beside_number_)
      place_ =
          places_.next(to_everybody ? header.bytes : apart_ * static_cast<std::size_t>(size()));
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      write(announced_by(rank(), r), shown[r].payload, writer_);
      if (to_everybody) break;
    }
    one_sided::announce<HostMemory>(mine.number, round_);
    others_may_sleep_ = true;
  }

  std::optional<Completion> wait(const Deadline& deadline) override {
    std::optional<Completion> done;
    for (;;) {
      for (int i = 0; i < polls_without_yield_ && !(done = complete()); ++i) HostMemory::pause();
      if (others_may_sleep_) wake_others();
      if (done || poll_.until(
                      deadline, [&] { return (done = complete()).has_value(); }, patience_))
        return done;
      throw_if_peer_left();
      if (deadline.expired()) return std::nullopt;
      sleep(deadline);
    }
  }

  void release() override {
    if (!reading_) return;
    reading_ = false;
    free_slot(std::exchange(incoming_.peer, -1));
  }

 private:
  struct Outgoing {
    int peer;
    MessageHeader header;
    std::span<const std::byte> payload;
    std::size_t done = 0;    // payload bytes that lie in slots
    bool published = false;  // the header and the whole payload
  };
  struct Incoming {
    int peer = -1;  // -1: none
    MessageHeader expected;
    std::span<std::byte> into;
    std::size_t done = 0;
  };

  SegmentHead& head(int r) const { return *reinterpret_cast<SegmentHead*>(segments_[r].data()); }

  // The channel from one rank to another lies in the segment of the receiver.
  std::byte* channel_memory(int from, int to) const {
    const auto index = static_cast<std::size_t>(from < to ? from : from - 1);
    return segments_[to].data() + sizeof(SegmentHead) + index * channel_bytes(layout_);
  }

  void wake(int peer) {
    Doorbell& doorbell = head(peer).doorbell;
    if (one_sided::must_wake<HostMemory>(doorbell)) futex_wake(doorbell.asleep.value);
  }

  std::optional<Completion> complete() {
    fill_slots();
    if (!outgoing_.empty() && outgoing_.front().published) {
      outgoing_.erase(outgoing_.begin());
      return Completion{Completion::sent, {}};
    }
    if (awaited_announcement_ >= 0)
      return has_announced(awaited_announcement_) ? std::optional(take_announcement())
                                                  : std::nullopt;
    while (can_receive())
      if (const auto payload = take_piece()) return Completion{Completion::received, *payload};
    return std::nullopt;
  }

  // Writes as many pieces as there are free slots, in the order of the sends.
  void fill_slots() {
    for (Outgoing& message : outgoing_)
      while (!message.published) {
        if (!to_[message.peer].may_write()) return;
        put_piece(message);
      }
  }

  void put_piece(Outgoing& message) {
    ChannelEnd& channel = to_[message.peer];
    const auto rest = message.payload.subspan(message.done);
    const auto piece = rest.first(std::min<std::size_t>(rest.size(), layout_.piece_bytes));
    channel.write(message.header, piece);
    message.done += piece.size();
    message.published = message.done == message.payload.size();
    wake(message.peer);
  }

  // Takes the next piece. Returns the payload when the message is complete. A message in one piece
  // stays in its slot until release().
  std::optional<std::span<const std::byte>> take_piece() {
    const ChannelEnd& channel = from_[incoming_.peer];
    if (incoming_.done == 0)
      check_message(incoming_.expected, channel.header(), rank(), incoming_.peer);
    const std::size_t bytes = incoming_.expected.bytes,
                      length = std::min<std::size_t>(bytes - incoming_.done, layout_.piece_bytes);
    const std::span<const std::byte> piece(channel.payload(length), length);
    if (piece.size() == bytes && incoming_.into.empty()) {
      reading_ = true;
      return piece;
    }
    if (incoming_.into.empty()) {
      if (scratch_.size() < bytes) scratch_.resize(bytes);
      incoming_.into = std::span(scratch_).first(bytes);
    }
    if (!piece.empty())
      std::memcpy(incoming_.into.data() + incoming_.done, piece.data(), piece.size());
    incoming_.done += piece.size();
    free_slot(incoming_.peer);
    if (incoming_.done < bytes) return std::nullopt;
    incoming_.peer = -1;
    return incoming_.into;
  }

  void free_slot(int peer) {
    from_[peer].free_slot();
    wake(peer);
  }

  Announcement& announcement_of(int r, Number round) const {
    return head(r).announcements[round % 2];
  }

  // Where rank `to` reads what rank `from` shows it in this round.
  std::byte* announced_by(int from, int to) const {
    std::byte* const first =
        beside_number_ ? announcement_of(from, round_).payload
                       : segments_[from].data() + end_of_channels(layout_, size()) + place_;
    return first + static_cast<std::size_t>(to) * apart_;
  }

  // The fingerprints stand for the headers, which are compared only to name the difference.
  Completion take_announcement() {
    const int peer = std::exchange(awaited_announcement_, -1);
    const Announcement &mine = announcement_of(rank(), round_),
                       &seen = announcement_of(peer, round_);
    if (seen.fingerprint != mine.fingerprint) check_message(mine.header, seen.header, rank(), peer);
    return {Completion::received, {announced_by(peer, rank()), mine.header.bytes}};
  }

  // After an announcement, once. Not at once: the fence in wake() waits until the announcement's
  // line has been taken away from the others' caches, and this rank reads theirs meanwhile.
  void wake_others() {
    others_may_sleep_ = false;
    for (int r = 0; r < size(); ++r)
      if (r != rank()) wake(r);
  }

  bool has_announced(int r) const {
    return one_sided::is_announced<HostMemory>(announcement_of(r, round_).number, round_);
  }

  bool receiving() const { return incoming_.peer >= 0 && !reading_; }
  bool can_receive() const {
    if (awaited_announcement_ >= 0) return has_announced(awaited_announcement_);
    return receiving() && from_[incoming_.peer].may_read();
  }

  bool can_send() { return !outgoing_.empty() && to_[outgoing_.front().peer].may_write(); }

  // A peer that this rank waits for and that has left; -1: none.
  int departed_peer() const {
    for (const int peer : {awaited_announcement_, receiving() ? incoming_.peer : -1,
                           outgoing_.empty() ? -1 : outgoing_.front().peer})
      if (peer >= 0 && HostMemory::load_acquire(head(peer).left.value) != 0) return peer;
    return -1;
  }

  // A message that the peer published before it left is received first.
  void throw_if_peer_left() {
    const int peer = departed_peer();
    if (peer >= 0 && !can_send() && !can_receive()) throw ConnectionBroken(peer, "it has left");
  }

  // Until a peer rings the doorbell, or until the deadline.
  void sleep(const Deadline& deadline) {
    Doorbell& doorbell = head(rank()).doorbell;
    one_sided::about_to_sleep<HostMemory>(doorbell);
    if (!can_send() && !can_receive() && departed_peer() < 0)
      futex_wait(doorbell.asleep.value, 1, deadline.remaining());
    one_sided::woken<HostMemory>(doorbell);
  }

  // A poll costs next to nothing, and a peer that runs answers within a fraction of a microsecond.
  // With more ranks than cores the peer may not run: then this rank yields its core at once. It
  // also yields for longer before it sleeps: until all others on the core have had their turn.
  const int polls_without_yield_;
  const Seconds patience_;
  ShmLayout layout_;
  std::vector<SharedSegment> segments_;  // [rank]
  std::vector<ChannelEnd> to_, from_;    // [peer]
  std::vector<Outgoing> outgoing_;       // window() at most
  Incoming incoming_;
  bool reading_ = false;            // the executor reads the payload in the slot
  std::vector<std::byte> scratch_;  // for a message in pieces without a place of its own
  int awaited_announcement_ = -1;   // by this rank; -1: none
  Number round_ = 0;                // of the last announcement
  bool beside_number_ = false;      // its payload lies there, otherwise at place_ in the room
  std::size_t place_ = 0;
  std::size_t apart_ = 0;  // bytes between the payloads of two ranks
  Places places_;          // of long announcements
  SlotWriter writer_;
  bool others_may_sleep_ = false;  // they wait for that announcement, and nobody has woken them
  SpinThenYield poll_;
};

}  // namespace

ShmLayout shm_layout(const ShmOptions& options, int size) {
  require(std::has_single_bit(options.slots) && options.piece_bytes >= 1,
          "shared memory needs a power of two of slots, not {} of {} bytes", options.slots,
          options.piece_bytes);
  const auto peers = static_cast<std::uint64_t>(std::max(1, size - 1));
  // Fewer slots before shorter pieces: a slice in one piece is read in place.
  std::uint32_t slots = options.slots;
  while (slots > 2 && peers * slots * options.piece_bytes > options.segment_bytes) slots /= 2;
  const std::uint64_t longest =
      std::max<std::uint64_t>(4096, options.segment_bytes / peers / slots);
  const std::uint64_t piece_bytes = rounded(std::min<std::uint64_t>(options.piece_bytes, longest));
  const std::uint64_t room =
                          rounded(std::min(options.room_bytes, options.segment_bytes / 2 / peers)),
                      least = slots * piece_bytes;
  return {static_cast<std::uint32_t>(piece_bytes), slots,
          static_cast<std::uint32_t>(room < least + piece_bytes ? least : room),
          static_cast<std::uint32_t>(rounded(options.announced_bytes))};
}

std::size_t shm_segment_bytes(const ShmLayout& layout, int size) {
  return end_of_channels(layout, size) + announcements_in_room * layout.announced_bytes;
}

std::unique_ptr<Transport> make_shm_transport(int rank, std::uint32_t job, const ShmLayout& layout,
                                              std::vector<SharedSegment> segments, bool crowded) {
  return std::make_unique<ShmTransport>(rank, job, layout, std::move(segments), crowded);
}

}  // namespace ringside::collectives
