// The first bytes on a connection between ranks, and how they are checked.
//
//     the rank that connects sends    Handshake   always 104 bytes, with a random number
//     the rank that listens answers   Challenge   56 bytes: its random number, and its proof
//     the rank that connects sends    its proof   32 bytes
//     rank 0 answers a join with      Answer      12 bytes, then the table or a refusal
//     a rank with all connections     Answer      12 bytes to rank 0; or why it cannot connect
//     rank 0 answers when all have    Answer      12 bytes: everybody is connected, or a refusal
//
// A proof is a keyed hash (base/sha256.hpp) of the handshake and both random numbers. Only who has
// the job key can compute it, nobody learns the key from it, and it fits no other connection. The
// rank that listens proves first, so who connects tells a stranger nothing that depends on the key.
//
// The fixed lengths keep a stranger (a browser, a port scanner, another job) from making a rank
// wait for a length of the stranger's choice, or reserve memory for it. These functions check bytes
// and do no I/O.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.hpp"
#include "collectives/bootstrap/rendezvous/address.hpp"

namespace ringside::collectives {

// Random bytes that are used once, so that no recorded proof fits again.
using Nonce = std::array<std::uint8_t, 16>;
Nonce new_nonce();

struct Handshake {
  // What the connection is for: to join the job at rank 0, or for messages between two ranks.
  enum Purpose : std::uint16_t { join = 1, data, control };
  static constexpr std::uint32_t expected_magic = 0x4a474e52;  // "RNGJ"
  static constexpr std::uint16_t our_version = 6;
  std::uint32_t magic = expected_magic;
  std::uint16_t version = our_version;
  std::uint16_t purpose = join;
  Nonce nonce{};
  std::int32_t rank = 0;
  std::int32_t size = 0;
  Address listens_on;
  char backend[8] = {};  // RankInfo::backend, filled up with zeros
};
static_assert(sizeof(Handshake) == 104, "the layout is the wire format");

// Why the sender cannot be a member of this job; nothing if it can, and its proof decides.
std::optional<std::string> reason_to_turn_away(const Handshake& handshake);

struct Challenge {
  std::uint32_t magic = Handshake::expected_magic;
  std::uint32_t unused = 0;
  Nonce nonce{};
  Digest proof{};
};
static_assert(sizeof(Challenge) == 56, "the layout is the wire format");

// What a rank that listens answers to a handshake.
Challenge challenge_for(const Handshake& handshake, std::string_view job_key);

// Whether the sender of the challenge has the job key.
bool proves_key(const Challenge& challenge, const Handshake& handshake, std::string_view job_key);

// What the rank that sent `handshake` answers to the challenge.
Digest proof_for(const Challenge& challenge, const Handshake& handshake, std::string_view job_key);

struct Answer {
  enum Kind : std::uint32_t { table = 1, refusal, connected };
  std::uint32_t magic = Handshake::expected_magic;
  std::uint32_t kind = table;
  std::uint32_t bytes = 0;  // of the table or the refusal that follows; connected: 0
};

// Whether a rank of a job of `size` ranks could have sent this answer. If not, read nothing after
// it and reserve no memory for it.
bool plausible(const Answer& answer, int size);

// The addresses of `size` ranks, from the bytes after an Answer. Throws Error with rank 0's reason
// if it refuses, and Error if the table has another size.
std::vector<Address> table_from(const Answer& answer, std::string_view body, int size);

}  // namespace ringside::collectives
