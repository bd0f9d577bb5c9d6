// A number of 32 bits that tells one text from another: FNV-1a of its bytes, folded. Not against
// malice.
//
// 32 bits, so that a double, and a sum of a few thousand of them, holds it exactly: ranks compare
// it by averaging.
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
