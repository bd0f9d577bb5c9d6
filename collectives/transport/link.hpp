// A network that is not here: how fast a rank's way out carries bytes, and how long a message is on
// the way.
//
// On one machine messages go through memory. A link slows them down to what a cluster shows
// (transport/shaped.hpp), so that one can see on a laptop what overlap and buckets are good for:
//
//     ringside train -n 2 --link 1Gbps,50us ...      or      RINGSIDE_LINK=1Gbps,50us
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "collectives/selection/cost_model.hpp"

namespace ringside::collectives {

struct Link {
  double bytes_per_second = 0;
  Seconds latency{0};  // from the last byte's departure until it has arrived

  // How long a message of so many bytes keeps the way out busy.
  Seconds busy(std::size_t bytes) const {
    return Seconds(static_cast<double>(bytes) / bytes_per_second);
  }
};

// "1Gbps,50us": 10^9 bits in a second, 50 microseconds on the way; without a latency it is 0. Rates
// are in Kbps, Mbps, Gbps or Tbps, powers of ten of BITS per second, at least 1 Mbps; latencies in
// ns, us, ms or s. Throws Error that says what is understood.
Link parse_link(std::string_view text);

// "1 Gbps, 50 us".
std::string to_text(const Link& link);

// What RINGSIDE_LINK says; nothing where it is unset. Throws Error as parse_link does, naming the
// variable.
std::optional<Link> link_from_environment();

// What messages cost where they also have to pass such a link: by this an algorithm is chosen.
MachineCosts costs_behind(const Link& link, MachineCosts costs);

}  // namespace ringside::collectives
