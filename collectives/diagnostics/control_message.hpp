// The messages of the control channel, and their wire format.
//
//     | magic  kind | rank  step | sequence | call, 64 bytes | length of text | text |
//       96 bytes in all, then the text
//
// The bytes may come from anywhere. The reader rejects a length that no rank would send before it
// reserves memory for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/call.hpp"

namespace ringside::collectives {

struct ControlMessage {
  enum Kind : std::uint32_t { goodbye = 1, gave_up, position };
  Kind kind = goodbye;
  std::int32_t rank = -1;  // gave_up: the rank to blame. position: Position::waiting_for
  std::uint32_t step = 0;
  std::uint64_t sequence = 0;
  Call call = {};
  std::string text = {};  // gave_up: the cause. Otherwise: a CallHistory, or nothing
};

inline constexpr std::size_t longest_control_text = 4096;  // a CallHistory fits

// Cuts a text that is too long.
std::string to_bytes(const ControlMessage& message);

// Takes bytes in pieces of any length, and returns the messages that are complete.
class ControlMessageReader {
 public:
  void feed(std::string_view bytes) { unread_ += bytes; }

  // The next message; nothing if it is not complete yet. Throws Error if the bytes are not a
  // message, and forgets them.
  std::optional<ControlMessage> next();

 private:
  std::string unread_;
};

}  // namespace ringside::collectives
