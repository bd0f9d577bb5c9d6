// Fingerprint: a 32-bit hash that distinguishes texts (FNV-1a of the bytes, folded). It does not
// protect against deliberate collisions.
//
// It has 32 bits because ranks compare it by averaging: a double holds it, and the sum of a few
// thousand of them, exactly.
#pragma once

#include <cstdint>

namespace ringside::transformer {

class Fingerprint {
 public:
  template <class Bytes>
  void add(const Bytes& bytes) {
    std::uint64_t hash = hash_;
    for (const auto byte : bytes) hash = (hash ^ static_cast<std::uint8_t>(byte)) * 0x100000001b3;
    hash_ = hash;
  }
  std::uint32_t value() const { return static_cast<std::uint32_t>(hash_ ^ hash_ >> 32); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace ringside::transformer
