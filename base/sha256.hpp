// SHA-256 and the keyed hash made of it (HMAC, RFC 2104), both from OpenSSL's libcrypto; and random
// bits from the kernel.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace ringside {

using Digest = std::array<std::uint8_t, 32>;

// The hash of bytes that come in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void add(std::string_view bytes);
  Digest digest();  // call it once, after all bytes

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

Digest sha256(std::string_view bytes);

// Only who has the key can compute it.
Digest keyed_hash(std::string_view key, std::string_view bytes);

// Takes the same time wherever the first difference is, so that nobody can guess a digest byte by
// byte.
bool equal_in_constant_time(const Digest& a, const Digest& b);

std::string hexadecimal(std::span<const std::uint8_t> bytes);  // "00ff"

// Fills `bytes` with numbers that nobody can predict.
void fill_with_random_bits(std::span<std::uint8_t> bytes);

}  // namespace ringside
