// The lower of the two seams: how messages get from one rank to another.
//
// To add a network, write a Transport, a function that connects it, and its name where users choose
// one (docs/hacking.md). It belongs to one rank and one thread, and starts no threads. An executor
// drives it in a loop:
//
//     post_send(right, header, payload)     up to window() sends may be in flight
//     post_receive(left, header, into)      one receive at a time
//     wait(deadline) -> sent | received     whichever completes first; nothing after the deadline
//     release()                             the payload of the last receive is no longer needed
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "collectives/transport/message_header.hpp"

namespace ringside::collectives {

// Nothing more can come from `peer`, or go to it. what() is the symptom; the control channel knows
// the reason (diagnostics/control_channel.hpp).
class ConnectionBroken : public Error {
 public:
  ConnectionBroken(int rank, const std::string& symptom) : Error(symptom), peer(rank) {}
  int peer;
};

struct Completion {
  enum Kind { sent, received } kind;
  // Of a receive: the payload, in `into` if post_receive() got one. Otherwise in memory of the
  // transport or of the peer: do not write to it, and call release().
  std::span<const std::byte> payload;
};

struct Shown;
class Transport {
 public:
  Transport(int rank, int size, std::uint32_t job = 0) : rank_(rank), size_(size), job_(job) {}
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::uint32_t job() const { return job_; }  // for MessageHeader::job
  virtual std::string_view name() const = 0;
  virtual int window() const = 0;

  // The payload size at which long chunks travel fastest, measured: docs/performance.md.
  virtual std::size_t slice_bytes() const { return 256 * 1024; }

  // Starts a send. `payload` must stay in place, unchanged, until the send completes or cancel()
  // returns. Sends complete in the order in which they were posted.
  virtual void post_send(int peer, const MessageHeader& header,
                         std::span<const std::byte> payload) = 0;

  // Starts a receive of the next message from `peer`, which must have the header `expected`. The
  // payload goes to `into`, which has expected.bytes bytes, or where the transport chooses if
  // `into` is empty.
  virtual void post_receive(int peer, const MessageHeader& expected, std::span<std::byte> into) = 0;

  // Shows every other rank r shown[r], of announced_bytes() together (shm/announcement.hpp).
  virtual void announce(const MessageHeader&, std::span<const Shown>) {}
  virtual std::size_t announced_bytes() const { return 0; }  // 0: it cannot announce

  // Returns when a send or the receive completes; nothing if the deadline passes first. Throws
  // ConnectionBroken, and Error when another message arrives than the expected one.
  virtual std::optional<Completion> wait(const Deadline& deadline) = 0;

  // Ends the use of the payload of the last receive.
  virtual void release() = 0;

  // After a failure: drops all that was posted. No peer reads a payload any more when it returns.
  virtual void cancel() noexcept {}

 private:
  int rank_, size_;
  std::uint32_t job_;
};

}  // namespace ringside::collectives
