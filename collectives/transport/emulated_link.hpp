// A transport behind an emulated link (link.hpp). A message departs when the sender's wire has
// carried all its bytes, and arrives one latency later.
//
//     posted    ├─ a ─┤          ├ b is posted while a departs: the wire continues without a gap
//     wire      ├─ a: bytes / rate ─┼─ b: bytes / rate ─┤
//     arrives                       └ latency ┴ a       └ latency ┴ b
//
// It wraps any other transport and holds messages back until they are due; then the inner transport
// carries them. All sends of a rank share one wire, to any peer and in any sub-group, as a host
// shares its network card. So do its receives: of two messages that come at once from two ranks,
// the second has arrived when the wire has carried its bytes as well. The two wires are independent
// (full duplex). Messages of send() and recv() (messages.cpp) take part in the outgoing one only.
//
// While a wire is busy with a long message the rank sleeps, so its core is free for computation.
// For a short message it polls, since a sleep may end late by more than the latency of a fast link.
// A message's departure follows from the departure of the message before it, not from the time of a
// wake-up: one that is late delays one message but not those behind it.
//
// The control channel does not pass the link: it is no part of what is measured.
#pragma once

#include <memory>
#include <mutex>

#include "collectives/transport/link.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

// A rank's end of the link. Any thread may use it.
class Wire {
 public:
  explicit Wire(const Link& link) : link_(link) {}
  const Link& link() const { return link_; }

  // Occupies the outgoing wire for a message that is ready at `now`, behind all earlier ones.
  // Returns when the last byte departs.
  Clock::time_point carry(std::size_t bytes, Clock::time_point now);

  // Occupies the incoming wire for a message whose last byte is there at `now` if the wire carried
  // nothing else. Returns when it is there, behind all earlier ones.
  Clock::time_point receive(std::size_t bytes, Clock::time_point now);

 private:
  Link link_;
  std::mutex mutex_;
  Clock::time_point free_{}, received_{};
};

// `inner` behind `wire`. The transports of a rank's sub-groups share the rank's wire.
std::unique_ptr<Transport> make_emulated_link(std::unique_ptr<Transport> inner,
                                              std::shared_ptr<Wire> wire);

}  // namespace ringside::collectives
