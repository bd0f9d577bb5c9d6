#include "collectives/bootstrap/rendezvous/handshake.hpp"

#include <cstring>

#include "base/error.hpp"
#include "base/text/printable.hpp"

namespace ringside::collectives {
namespace {

constexpr std::uint32_t longest_refusal = 1 << 16;

// `role` keeps the proof of one side from being the proof of the other.
Digest proof_of(std::string_view role, const Handshake& handshake, const Nonce& nonce,
                std::string_view job_key) {
  std::string text(role);
  text.append(reinterpret_cast<const char*>(&handshake), sizeof handshake);
  text.append(reinterpret_cast<const char*>(nonce.data()), nonce.size());
  return keyed_hash(job_key, text);
}

}  // namespace

Nonce new_nonce() {
  Nonce nonce;
  fill_with_random_bits(nonce);
  return nonce;
}

std::optional<std::string> reason_to_turn_away(const Handshake& handshake) {
  if (handshake.magic != Handshake::expected_magic) return "it does not speak Ringside's protocol";
  if (handshake.version != Handshake::our_version)
    return fmt::format("it speaks version {} of the protocol, and this job version {}",
                       handshake.version, Handshake::our_version);
  return std::nullopt;
}

Challenge challenge_for(const Handshake& handshake, std::string_view job_key) {
  Challenge challenge{.nonce = new_nonce()};
  challenge.proof = proof_of("listens", handshake, challenge.nonce, job_key);
  return challenge;
}

bool proves_key(const Challenge& challenge, const Handshake& handshake, std::string_view job_key) {
  const Digest expected = proof_of("listens", handshake, challenge.nonce, job_key);
  return challenge.magic == Handshake::expected_magic &&
         equal_in_constant_time(challenge.proof, expected);
}

Digest proof_for(const Challenge& challenge, const Handshake& handshake, std::string_view job_key) {
  return proof_of("connects", handshake, challenge.nonce, job_key);
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
