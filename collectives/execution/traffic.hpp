// What a rank has sent.
#pragma once

#include <cstdint>

namespace ringside::collectives {

struct Traffic {
  std::uint64_t messages_sent = 0;
  std::uint64_t payload_bytes_sent = 0;  // without headers
};

}  // namespace ringside::collectives
