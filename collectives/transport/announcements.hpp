// A few bytes that a rank shows to all others at once, where they lie. Only a transport whose ranks
// see the same memory can do that (shm/announcement.hpp).
#pragma once

#include <optional>
#include <span>

#include "collectives/transport/message_header.hpp"

namespace ringside::collectives {

// Part of a transport, for the same rank and thread. Announcements come in rounds: in each round
// every rank announces a payload of equal length once, and reads the announcements of all others.
class Announcements {
 public:
  // How many bytes a rank reads of all others in a round at most.
  virtual std::size_t bytes_in_a_round() const = 0;

  // Begins a round: shows `payload` to all other ranks. It counts as a message to each of them.
  virtual void announce(const MessageHeader& header, std::span<const std::byte> payload) = 0;

  // What `peer`, or this rank itself, announces in this round: valid until the next round. If it is
  // not there yet: nothing, and Transport::wait() returns it as a received message, which needs no
  // release(). Throws Error if the header differs from the one that this rank has announced.
  virtual std::optional<std::span<const std::byte>> read(int peer) = 0;

 protected:
  ~Announcements() = default;
};

}  // namespace ringside::collectives
