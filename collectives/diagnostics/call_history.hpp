// What a rank has called last, by number.
//
// Ranks that make different calls need not notice it there: a small message is gone before anybody
// waits, and what shows is a later call, or a neighbour that has left. So who waits for long tells
// the others what it has called, and whoever hears it compares: two histories name the very call at
// which the ranks parted.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/call.hpp"

namespace ringside::collectives {

class CallHistory {
 public:
  static constexpr std::uint64_t capacity =
      48;  // calls; a send or recv is numbered by its pair alone, and does not belong here

  // Call number `number` of the group begins: the one after last().
  void add(std::uint64_t number, const Call& call) {
    calls_[number % capacity] = call;
    last_ = number;
    first_ = first_ == 0 ? number : std::max(first_, number < capacity ? 1 : number - capacity + 1);
  }

  // What is remembered: first() to last(); both 0 where there is nothing.
  std::uint64_t first() const { return first_; }
  std::uint64_t last() const { return last_; }
  const Call& at(std::uint64_t number) const { return calls_[number % capacity]; }

  // The first call that both remember and that is not the same.
  std::optional<std::uint64_t> parted_from(const CallHistory& other) const {
    if (first_ == 0 || other.first_ == 0) return std::nullopt;
    for (std::uint64_t n = std::max(first_, other.first_); n <= std::min(last_, other.last_); ++n)
      if (at(n) != other.at(n)) return n;
    return std::nullopt;
  }

  // As bytes for another rank: the number of the first call, then the calls. What comes from there
  // is not trusted: bytes that are no history are none.
  static constexpr std::size_t most_bytes = sizeof(std::uint64_t) + capacity * sizeof(Call);
  std::string bytes() const {
    if (first_ == 0) return {};
    std::string text(reinterpret_cast<const char*>(&first_), sizeof first_);
    for (std::uint64_t n = first_; n <= last_; ++n)
      text.append(reinterpret_cast<const char*>(&at(n)), sizeof(Call));
    return text;
  }
  static CallHistory from_bytes(std::string_view text) {
    CallHistory history;
    std::uint64_t number = 0;
    if (text.size() < sizeof number || text.size() > most_bytes ||
        (text.size() - sizeof number) % sizeof(Call) != 0)
      return history;
    std::memcpy(&number, text.data(), sizeof number);
    if (number == 0 || number > ~std::uint64_t{0} - capacity) return history;
    for (std::size_t at = sizeof number; at < text.size(); at += sizeof(Call)) {
      Call call;
      std::memcpy(static_cast<void*>(&call), text.data() + at, sizeof call);
      history.add(number++, call);
    }
    return history;
  }

 private:
  std::array<Call, capacity> calls_;
  std::uint64_t first_ = 0, last_ = 0;
};

}  // namespace ringside::collectives
