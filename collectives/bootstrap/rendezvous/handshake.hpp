// The first bytes on a connection between ranks, and how they are checked.
//
//     the rank that connects sends    Handshake   always 104 bytes
//     rank 0 answers a join with      Answer      12 bytes, then the table or a refusal
//     a rank with all connections     1 byte      to rank 0
//     rank 0 answers when all have    Answer      12 bytes: everybody is connected, or a refusal
//
// The fixed length keeps a stranger (a browser, a port scanner, another job) from making a rank
// wait for a length of the stranger's choice, or reserve memory for it. These functions check bytes
// and do no I/O.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/bootstrap/rendezvous/address.hpp"

namespace ringside::collectives {

// Two hashes of the job key. The key itself is never sent.
using Key = std::array<std::uint64_t, 2>;
Key hash_of(const std::string& job_key);

struct Handshake {
  // What the connection is for: to join the job at rank 0, or for messages between two ranks.
  enum Purpose : std::uint16_t { join = 1, data, control };
  static constexpr std::uint32_t expected_magic = 0x4a474e52;  // "RNGJ"
  static constexpr std::uint16_t our_version = 3;
  std::uint32_t magic = expected_magic;
  std::uint16_t version = our_version;
  std::uint16_t purpose = join;
  Key key{};
  std::int32_t rank = 0;
  std::int32_t size = 0;
  Address listens_on;
  char backend[8] = {};  // RankInfo::backend, filled up with zeros
};
static_assert(sizeof(Handshake) == 104, "the layout is the wire format");

// Why the sender is no member of the job with this key; nothing if it is one.
std::optional<std::string> reason_to_turn_away(const Handshake& handshake, const Key& key);

struct Answer {
  enum Kind : std::uint32_t { table = 1, refusal, connected };
  std::uint32_t magic = Handshake::expected_magic;
  std::uint32_t kind = table;
  std::uint32_t bytes = 0;  // of the table or the refusal that follows; connected: 0
};

// Whether rank 0 of a job of `size` ranks could have sent this answer. If not, read nothing after
// it and reserve no memory for it.
bool plausible(const Answer& answer, int size);

// The addresses of `size` ranks, from the bytes after an Answer. Throws Error with rank 0's reason
// if it refuses, and Error if the table has another size.
std::vector<Address> table_from(const Answer& answer, std::string_view body, int size);

}  // namespace ringside::collectives
