#include "collectives/transport/shm/slot_writer.hpp"

#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/clock.hpp"

namespace ringside::collectives {
namespace {

constexpr int slow_copies = 3;  // in a row; one alone was interrupted
constexpr int streamed_then = 256;

#ifdef __SSE2__
constexpr bool can_stream = true;

void stream(std::byte* into, std::span<const std::byte> payload) {
  const std::size_t whole = payload.size() / 16 * 16;
  for (std::size_t i = 0; i < whole; i += 16) {
    const auto* from = reinterpret_cast<const __m128i*>(payload.data() + i);
    _mm_stream_si128(reinterpret_cast<__m128i*>(into + i), _mm_loadu_si128(from));
  }
  std::memcpy(into + whole, payload.data() + whole, payload.size() - whole);
  _mm_sfence();  // a store with release does not wait for streaming stores
}
#else
constexpr bool can_stream = false;
void stream(std::byte*, std::span<const std::byte>) {}
#endif

}  // namespace

void SlotWriter::write(std::byte* into, std::span<const std::byte> payload) {
  if (to_stream_ > 0) {
    --to_stream_;
    return stream(into, payload);
  }
  const auto start = Clock::now();
  std::memcpy(into, payload.data(), payload.size());
  const bool slow = seconds_since(start) > slow_ * static_cast<double>(payload.size());
  slow_in_a_row_ = slow ? slow_in_a_row_ + 1 : 0;
  if (can_stream && slow_in_a_row_ >= slow_copies) to_stream_ = streamed_then;
}

}  // namespace ringside::collectives
