// The last calls of a rank, by number.
//
// Ranks that make different calls may not notice it in those calls: a small message is delivered
// before anybody waits, and the error shows in a later call, or when a neighbour has left. So a
// rank that waits for long tells the others its history. Two histories name the first call in which
// the ranks differ.
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
  // How many calls are kept. A send or recv is no part of it: each pair of ranks numbers its own.
  static constexpr std::uint64_t capacity = 48;

  // Call number `number` of the group begins; it follows last().
  void add(std::uint64_t number, const Call& call) {
    calls_[number % capacity] = call;
    last_ = number;
    first_ = first_ == 0 ? number : std::max(first_, number < capacity ? 1 : number - capacity + 1);
  }

  // The calls that are kept have the numbers first() to last(); both are 0 if there is none.
  std::uint64_t first() const { return first_; }
  std::uint64_t last() const { return last_; }
  const Call& at(std::uint64_t number) const { return calls_[number % capacity]; }

  // The number of the first call that both histories have and that differs.
  std::optional<std::uint64_t> first_difference(const CallHistory& other) const {
    if (first_ == 0 || other.first_ == 0) return std::nullopt;
    for (std::uint64_t n = std::max(first_, other.first_); n <= std::min(last_, other.last_); ++n)
      if (at(n) != other.at(n)) return n;
    return std::nullopt;
  }

  // The wire format; from_bytes() returns an empty history for bytes that are not one.
  std::string bytes() const {
    return first_ == 0 ? "" : std::string(reinterpret_cast<const char*>(this), sizeof *this);
  }
  static CallHistory from_bytes(std::string_view text) {
    CallHistory history;
    if (text.size() != sizeof history) return {};
    std::memcpy(static_cast<void*>(&history), text.data(), sizeof history);
    const std::uint64_t first = history.first_, last = history.last_;
    const bool valid = first > 0 && first <= last && last - first < capacity && last + 1 != 0;
    return valid ? history : CallHistory();
  }

 private:
  std::array<Call, capacity> calls_;
  std::uint64_t first_ = 0, last_ = 0;
};

}  // namespace ringside::collectives
