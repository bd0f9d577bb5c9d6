#include "collectives/transport/shm/slot_writer.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

using ringside::collectives::SlotWriter;

namespace {

// Whether payloads of all kinds of lengths, from addresses of any alignment, arrive whole, and
// nothing beside them is written to.
bool writes_what_it_is_given(SlotWriter writer) {
  constexpr std::size_t lengths[] = {1, 16, 8191, 8192, 8193, 8207, 40000, 131072};
  constexpr std::byte beside{0x5a};
  std::vector<std::byte> from(131072 + 64), memory(from.size() + 64);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::byte* const into =
      memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);
  for (int round = 0; round < 60; ++round)
    for (const std::size_t length : lengths) {
      std::fill(memory.begin(), memory.end(), beside);
      const std::span payload(from.data() + round % 17, length);
      writer.write(into, payload);
      if (!std::equal(payload.begin(), payload.end(), into)) return false;
      const auto untouched = [&](std::byte seen) { return seen == beside; };
      if (!std::all_of(memory.data(), into, untouched) ||
          !std::all_of(into + length, memory.data() + memory.size(), untouched))
        return false;
    }
  return true;
}

}  // namespace

TEST_CASE("payloads arrive whole by plain stores and by streaming ones") {
  for (const double slow : {0.0, 1.0}) CHECK(writes_what_it_is_given(SlotWriter(slow)));
}

#ifdef __SSE2__
TEST_CASE("after three slow copies in a row the writer streams for a while, then tries again") {
  alignas(64) static std::byte into[8192];
  const std::vector<std::byte> payload(sizeof into);
  SlotWriter always_slow(0), never_slow(1), never = SlotWriter::never_streams();
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(always_slow.streams());
    always_slow.write(into, payload);
    never_slow.write(into, payload);
    never.write(into, payload);
  }
  CHECK_FALSE(never_slow.streams());
  CHECK_FALSE(never.streams());
  for (int retries = 0; retries < 2; ++retries) {
    for (int i = 0; i < 256; ++i) {
      CHECK(always_slow.streams());
      always_slow.write(into, payload);
    }
    CHECK_FALSE(always_slow.streams());
    always_slow.write(into, payload);  // one slow copy is enough to go on
  }
}
#endif
