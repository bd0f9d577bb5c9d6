#include "collectives/bootstrap/rendezvous/handshake.hpp"

#include <cstring>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "base/random.hpp"

namespace ringside::collectives {
namespace {

constexpr std::uint32_t longest_refusal = 1 << 16;

std::uint64_t hash_of(const std::string& text, std::uint64_t hash) {
  for (const char c : text)
    hash = mix_bits(hash * 0x100000001b3ULL + static_cast<unsigned char>(c));
  return hash;
}

// Takes the same time wherever the first difference is, so that a stranger cannot guess a key part
// by part.
bool equal_in_constant_time(const Key& a, const Key& b) {
  return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0;
}

}  // namespace

Key hash_of(const std::string& job_key) {
  return {hash_of(job_key, 1), hash_of(job_key, 2)};
}

std::optional<std::string> reason_to_turn_away(const Handshake& handshake, const Key& key) {
  if (handshake.magic != Handshake::expected_magic) return "it does not speak Ringside's protocol";
  if (handshake.version != Handshake::our_version)
    return fmt::format("it speaks version {} of the protocol, and this job version {}",
                       handshake.version, Handshake::our_version);
  if (!equal_in_constant_time(handshake.key, key)) return "its job key is not the key of this job";
  return std::nullopt;
}

bool plausible(const Answer& answer, int size) {
  if (answer.magic != Handshake::expected_magic) return false;
  if (answer.kind == Answer::refusal) return answer.bytes <= longest_refusal;
  if (answer.kind == Answer::connected) return answer.bytes == 0;
  // A job of another size has another table: table_from() reports that.
  return answer.kind == Answer::table &&
         answer.bytes <= 2 * static_cast<std::uint64_t>(size) * sizeof(Address);
}

std::vector<Address> table_from(const Answer& answer, std::string_view body, int size) {
  require(answer.kind != Answer::refusal, "rank 0 refuses: {}", printable_line(body));
  require(answer.kind == Answer::table, "rank 0 sent no table");
  std::vector<Address> table(static_cast<std::size_t>(size));
  require(body.size() == table.size() * sizeof(Address),
          "rank 0 sent a table of {} bytes for {} ranks", body.size(), size);
  std::memcpy(static_cast<void*>(table.data()), body.data(), body.size());
  return table;
}

}  // namespace ringside::collectives
