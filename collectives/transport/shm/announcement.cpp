#include "collectives/transport/shm/announcement.hpp"

#include <cstring>

namespace ringside::collectives {

// Every word is mixed in by a multiplication, which carries a difference upwards, and a shift,
// which brings it down again.
std::uint64_t fingerprint_of(const MessageHeader& header) {
  std::uint64_t words[sizeof header / sizeof(std::uint64_t)];
  std::memcpy(words, &header, sizeof header);
  std::uint64_t mixed = 0;
  for (const std::uint64_t word : words) {
    mixed = (mixed ^ word) * 0x9e3779b97f4a7c15;
    mixed ^= mixed >> 32;
  }
  return mixed;
}

}  // namespace ringside::collectives
