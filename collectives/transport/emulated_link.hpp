// A transport behind a link (link.hpp): every message leaves when the way out has carried all of
// its bytes, and arrives a latency later.
//
//     posted    ├─ a ─┤          ├ posted while a was leaving: the wire goes on without a gap
//     wire      ├─ a: bytes / rate ─┼─ b: bytes / rate ─┤
//     arrives                       └ latency ┴ a       └ latency ┴ b
//
// It stands before any other transport and holds messages back until they are due; then that one
// carries them. What a rank sends shares one wire, to whomever it goes and in whichever sub-group:
// a host has one network card. What it receives does not slow down what it sends (full duplex), and
// does not wait for anything of its own. While the wire is busy the rank sleeps, so that the core
// is free for whoever computes. When a message leaves is worked out from the one before and not
// from when somebody woke up: a wake-up that comes late delays a message but not those behind it.
//
// News of failures and of where ranks stand go beside the link: they are not part of what is
// measured.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "collectives/transport/link.hpp"
#include "collectives/transport/transport.hpp"

namespace ringside::collectives {

// One rank's way out: when it is free.
class Wire {
 public:
  explicit Wire(const Link& link) : link_(link) {}
  const Link& link() const { return link_; }

  // Takes up the wire for a message that is there at `now`, behind all earlier ones. Returns when
  // its last byte has left. Any thread.
  Clock::time_point carry(std::size_t bytes, Clock::time_point now);

 private:
  Link link_;
  std::mutex mutex_;
  Clock::time_point free_{};
};

// `transport` behind that link; sub-groups founded from it share its wire. Without a link,
// `transport` itself.
std::unique_ptr<Transport> behind_link(std::unique_ptr<Transport> transport,
                                       const std::optional<Link>& link);

}  // namespace ringside::collectives
