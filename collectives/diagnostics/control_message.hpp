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
  // waits, failed_elsewhere: in all groups of the sender, whichever it waits or has failed in
  enum Kind : std::uint32_t { goodbye = 1, gave_up, position, waits, failed_elsewhere };
  Kind kind = goodbye;
  // gave_up, failed_elsewhere: the rank of the job to blame. position: Position::waiting_for
  std::int32_t rank = -1;
  std::uint32_t step = 0;
  std::uint64_t sequence = 0;
  Call call = {};
  // gave_up, failed_elsewhere: the cause. waits: the ToldWait of some ranks. Otherwise: a
  // CallHistory, or nothing
  std::string text = {};
};

inline constexpr std::size_t longest_control_text = 4096;  // a CallHistory fits

// "This rank waits for that one", as far as the sender has heard. Ranks have their numbers in the
// job. The waits of one rank stand together and replace all that it had told before.
struct ToldWait {
  std::int32_t rank = 0, waits_for = 0;
  std::uint32_t age_ms = 0;  // since the waiting rank told it
  std::uint32_t hops = 0;    // ranks that have passed it on
  std::uint32_t number = 0;  // how often the waiting rank has told: what comes round again is old
};

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
