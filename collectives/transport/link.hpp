// The description of an emulated network link: its rate and its latency.
//
// On one machine messages go through memory. An emulated link (transport/emulated_link.hpp) delays
// them as a cluster's network would, so that a laptop shows what overlap and buckets are good for:
//
//     ringside train -n 2 --link 1Gbps,50us ...      or      RINGSIDE_LINK=1Gbps,50us
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"

namespace ringside::collectives {

struct Link {
  double bytes_per_second = 0;
  Seconds latency{0};  // from the departure of the last byte until its arrival

  // How long a message of `bytes` bytes occupies either end of the link.
  Seconds busy(std::size_t bytes) const {
    return Seconds(static_cast<double>(bytes) / bytes_per_second);
  }
};

// Reads a link from text. "1Gbps,50us" is 10^9 bits per second and 50 microseconds; without a
// latency, it is 0. Rates are in Kbps, Mbps, Gbps or Tbps, powers of ten of BITS per second, at
// least 1 Mbps; latencies are in ns, us, ms or s. Throws Error that names the valid forms.
Link parse_link(std::string_view text);

// "1 Gbps, 50 us".
std::string to_text(const Link& link);

// The link in RINGSIDE_LINK; nothing if the variable is unset. Throws Error as parse_link() does,
// naming the variable.
std::optional<Link> link_from_environment();

}  // namespace ringside::collectives
