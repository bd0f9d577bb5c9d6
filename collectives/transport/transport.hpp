// The lower of the two seams: how messages get from one rank to another.
//
// Whoever adds a network writes a Transport, and nobody else notices. It belongs to one rank and
// one thread at a time; it starts no threads of its own. The executor drives it in one loop:
//
//     post_send(right, header, bytes)          up to window() sends may be under way, all to the same peer
//     post_receive(left, header, into)         one receive at a time
//     wait(deadline) -> sent | received        whichever comes first; nothing when the deadline has passed
//     release()                                the bytes of the last receive are no longer needed
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "collectives/call.hpp"
#include "collectives/diagnostics/call_history.hpp"
#include "collectives/transport/message_header.hpp"

namespace ringside::collectives {

// A rank of the group is gone, or has given up. `rank` is the one to blame, as far as it is known.
// `cause` is what the ranks tell each other: the sentence of the rank that found it out first,
// without what each rank adds for its own reader.
class RankFailure : public Error {
 public:
  RankFailure(int blamed, const std::string& what) : RankFailure(blamed, what, what) {}
  RankFailure(int blamed, const std::string& what, std::string first_cause)
      : Error(what), rank(blamed), cause(std::move(first_cause)) {}
  int rank;
  std::string cause;
  bool heard_from_another() const { return cause != what(); }
};

struct Completion {
  enum Kind { sent, received } kind;
  // For `received`: the payload where it lies. In `into`, if post_receive named one; else in memory
  // of the transport or of the peer, to be read but not written, until release().
  std::span<const std::byte> payload;
};

// Where a rank stands, told to the others when it has to wait for long.
struct Position {
  std::uint64_t sequence = 0;  // the call it is in
  Call call;
  std::uint32_t step = 0;
  std::int32_t waiting_for = -1;  // the peer whose message it lacks
  Clock::time_point heard{};      // when this was said
  CallHistory made;               // its collectives so far, as far as it has told

  // Waiting ranks tell where they stand every half second: who has not done so for thrice as long
  // is not waiting in a collective.
  static constexpr Seconds every{0.5};
  bool recent() const { return heard != Clock::time_point{} && Clock::now() - heard < 3 * every; }
};

inline bool all_recent(const std::vector<Position>& positions) {
  return std::all_of(positions.begin(), positions.end(),
                     [](const Position& position) { return position.recent(); });
}

// What went through a transport since it was made. Headers are not counted as payload.
struct Traffic {
  std::uint64_t messages_sent = 0;
  std::uint64_t payload_bytes_sent = 0;
};

class Transport {
 public:
  Transport(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  virtual std::string_view name() const = 0;
  virtual std::uint32_t job() const = 0;  // for MessageHeader::job

  // How many sends may be under way.
  virtual int window() const = 0;

  // The payload in which long chunks travel best here, measured: docs/performance.md.
  virtual std::size_t slice_bytes() const { return 256 * 1024; }

  // Starts sending to `peer`. `payload` must stay where it is, unchanged, until its `sent`; sends
  // complete in the order posted.
  void post_send(int peer, const MessageHeader& header, std::span<const std::byte> payload) {
    traffic_.messages_sent += 1;
    traffic_.payload_bytes_sent += payload.size();
    start_send(peer, header, payload);
  }

  // Asks for the next message from `peer`, which must be the one that `expected` describes:
  // otherwise wait() throws Error naming both calls. The payload goes into `into` where it has
  // expected.bytes bytes; if `into` is empty, the transport chooses the place.
  virtual void post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) = 0;

  // Returns when a send or the receive is complete; nothing if the deadline passes first. Throws
  // RankFailure when a rank is gone.
  virtual std::optional<Completion> wait(const Deadline& deadline) = 0;

  // Ends the use of the payload of the last `received`.
  virtual void release() = 0;

  // Tells every other rank why this one gives up; they throw RankFailure with this cause from their
  // next wait(). Never throws.
  virtual void abort(const RankFailure& cause) noexcept = 0;

  // Tells every other rank where this one stands, and what it has called: history().
  virtual void tell_position(const Position& mine) = 0;

  // What the others have told last, indexed by rank; takes in what has come, waiting for it up to
  // `patience`, or until it has heard recently from everybody. Throws RankFailure where another
  // rank has given up meanwhile: the first cause counts.
  virtual std::vector<Position> positions(Seconds patience) = 0;

  // Sub-groups (ProcessGroup::split). Every rank opens a door, and tells all others the contact:
  // bytes that mean something to this kind of transport only. Then every rank founds one group with
  // those that it shall be together with, itself among them as number `rank`; the name is the same
  // for all members, and no other group of this transport has it. Blocks until all members have
  // come, or throws Error.
  using Contact = std::array<std::byte, 64>;
  virtual Contact open_door() = 0;
  virtual std::unique_ptr<Transport> found(const std::string& name, int rank,
                                           const std::vector<Contact>& members) = 0;

  // The one call that another thread may make: from now on throw_if_interrupted(), which the
  // executor calls between waits, throws `cause`.
  void interrupt(const RankFailure& cause) noexcept {
    const std::lock_guard lock(interruption_mutex_);
    if (!interruption_) interruption_ = cause;
    interrupted_.store(true, std::memory_order_release);
  }
  void throw_if_interrupted() const {
    if (!interrupted_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(interruption_mutex_);
    throw *interruption_;
  }

  const Traffic& traffic() const { return traffic_; }
  void forget_traffic() { traffic_ = {}; }  // what was sent before the group's first call

  // What this rank has called: the executor writes it down.
  virtual CallHistory& history() { return history_; }

 protected:
  virtual void start_send(int peer, const MessageHeader& header,
                          std::span<const std::byte> payload) = 0;

 private:
  int rank_, size_;
  Traffic traffic_;
  CallHistory history_;
  std::atomic<bool> interrupted_ = false;
  mutable std::mutex interruption_mutex_;
  std::optional<RankFailure> interruption_;
};

}  // namespace ringside::collectives
