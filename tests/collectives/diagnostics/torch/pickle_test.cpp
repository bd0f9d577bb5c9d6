#include "collectives/diagnostics/torch/pickle.hpp"

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "tests/sample.hpp"

using namespace ringside;
using collectives::read_pickle;

namespace {

std::string bytes_of(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

// Written by Python: pickle.dumps(..., 2) and pickle.dumps(..., 4).
const std::string protocol_2 = bytes_of(
    "80027d7100285807000000656e747269657371015d71027d71032858040000006e616d657104580f00000067"
    "6c6f6f3a616c6c5f7265647563657105580500000073697a657371065d7107285d71084de803615d71096558"
    "05000000656e646564710a88756158070000006e756d62657273710b5d710c284e894b074d2c014a70110100"
    "4afbffffff8a06000000000001473fe000000000000065580400000070616972710d68014b0286710e580300"
    "00006f6e65710f58010000006171108571115805000000746872656571124b014b024b038771134b057d7114"
    "752e");
const std::string protocol_4 = bytes_of(
    "800495a9000000000000007d94288c07656e7472696573945d947d94288c046e616d65948c0f676c6f6f3a61"
    "6c6c5f726564756365948c0573697a6573945d94285d944de803615d94658c05656e646564948875618c076e"
    "756d62657273945d94284e894b074d2c014a701101004afbffffff8a06000000000001473fe0000000000000"
    "658c04706169729468014b0286948c036f6e65948c01619485948c057468726565944b014b024b0387944b05"
    "7d94752e");
// Of ValueError("x"), which names a class to call.
const std::string with_a_call = bytes_of(
    "800263657863657074696f6e730a56616c75654572726f720a710058010000007871018571025271032e");

}  // namespace

TEST_CASE("a pickle of data is the JSON that it would be") {
  const auto expected = Json::parse(R"({
      "entries": [{"name": "gloo:all_reduce", "sizes": [[1000], []], "ended": true}],
      "numbers": [null, false, 7, 300, 70000, -5, 1099511627776, 0.5],
      "pair": ["entries", 2], "one": ["a"], "three": [1, 2, 3], "5": {}})");
  CHECK(read_pickle(protocol_2) == expected);
  CHECK(read_pickle(protocol_4) == expected);
}

TEST_CASE("a pickle that would call a function is refused") {
  CHECK_THROWS_WITH_AS(
      read_pickle(with_a_call),
      "not a pickle of data, at byte 3: it has the opcode 0x63, and flight records "
      "have data alone",
      Error);
}

TEST_CASE("a pickle that is cut off or changed anywhere is read or refused and does no harm") {
  for (std::size_t length = 0; length < protocol_2.size(); ++length)
    CHECK_THROWS_AS(read_pickle(protocol_2.substr(0, length)), Error);
  testing::Sample sample;
  for (std::size_t at = 0; at < protocol_2.size(); ++at)
    for (int byte = 0; byte < 256; ++byte) {
      if (!sample.takes()) continue;
      std::string changed = protocol_2;
      changed[at] = static_cast<char>(byte);
      try {
        read_pickle(changed);
      } catch (const Error&) {
      }
    }
}
