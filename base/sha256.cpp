#include "base/sha256.hpp"

#include <cerrno>
#include <cstring>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include "base/error.hpp"

namespace ringside {
namespace {

void require_crypto(bool succeeded) {
  require(succeeded, "OpenSSL's libcrypto cannot compute SHA-256 on this machine");
}

}  // namespace

struct Sha256::Context {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> evp{EVP_MD_CTX_new(), &EVP_MD_CTX_free};
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  require_crypto(context_->evp && EVP_DigestInit_ex(context_->evp.get(), EVP_sha256(), nullptr));
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::add(std::string_view bytes) {
  require_crypto(EVP_DigestUpdate(context_->evp.get(), bytes.data(), bytes.size()));
}

Digest Sha256::digest() {
  Digest digest;
  require_crypto(EVP_DigestFinal_ex(context_->evp.get(), digest.data(), nullptr));
  return digest;
}

Digest sha256(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.digest();
}

Digest keyed_hash(std::string_view key, std::string_view bytes) {
  Digest digest;
  require_crypto(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                      digest.data(), nullptr) != nullptr);
  return digest;
}

bool equal_in_constant_time(const Digest& a, const Digest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string hexadecimal(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const auto byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

void fill_with_random_bits(std::span<std::uint8_t> bytes) {
  require(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
          "cannot get random numbers: {}", std::strerror(errno));
}

}  // namespace ringside
