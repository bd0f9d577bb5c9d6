// The first words on a connection between ranks, and whether to believe them.
//
//     who connects says        Hello      96 bytes, always: nobody can make the other side wait for, or keep room for, a length it names
//     rank 0 answers a join    Answer     12 bytes, then the table of addresses, or why there will be none
//
// Whatever comes in may be from a stranger: a browser, a port scanner, another job. These functions
// judge bytes and do no I/O.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/bootstrap/rendezvous.hpp"

namespace ringside::collectives {

// Two hashes of the job key, which is never sent as it is: a log or a stranger's socket shows only
// these.
using Key = std::array<std::uint64_t, 2>;
Key hash_of(const std::string& job_key);

struct Hello {
  enum Purpose : std::uint16_t { join = 1, data, lifeline };
  static constexpr std::uint32_t expected_magic = 0x4a474e52;  // "RNGJ"
  static constexpr std::uint16_t our_version = 1;
  std::uint32_t magic = expected_magic;
  std::uint16_t version = our_version;
  std::uint16_t purpose = join;
  Key key{};
  std::int32_t rank = 0;
  std::int32_t size = 0;
  Address listens_on;
  char unused[8] = {};
};
static_assert(sizeof(Hello) == 96, "the layout is the wire format");

// Why whoever says this does not belong to the job of that key; nothing if he does.
std::optional<std::string> reason_to_turn_away(const Hello& hello, const Key& key);

struct Answer {
  enum Kind : std::uint32_t { table = 1, refusal };
  std::uint32_t magic = Hello::expected_magic;
  std::uint32_t kind = table;
  std::uint32_t bytes = 0;
};

// Whether rank 0 of a job of `size` ranks may have said this: if not, nothing must be read, or kept
// room for, after it.
bool plausible(const Answer& answer, int size);

// The addresses of `size` ranks, from what follows an Answer. Throws Error where rank 0 refuses
// (with its reason), or has sent no table of that size.
std::vector<Address> table_from(const Answer& answer, std::string_view body, int size);

}  // namespace ringside::collectives
