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

  // The wire format: the number of the first call, then the calls. from_bytes() returns an empty
  // history for bytes that are not one.
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
