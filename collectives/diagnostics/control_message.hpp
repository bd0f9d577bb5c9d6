// What ranks tell each other over the lifeline, as bytes.
//
//     | magic  kind | rank  step | sequence | call, 64 bytes | length of text | text |        96 bytes, then the text
//
// What comes in is not trusted: a length that no rank would send is refused before anything is kept
// for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/call.hpp"

namespace ringside::collectives {

struct News {
  enum Kind : std::uint32_t { goodbye = 1, gave_up, position };
  Kind kind = goodbye;
  std::int32_t rank = -1;  // the one to blame, or the one waited for
  std::uint32_t step = 0;
  std::uint64_t sequence = 0;
  Call call;
  std::string text;  // gave_up: the cause. Else: a CallHistory, or nothing
};

inline constexpr std::size_t longest_news_text = 4096;

// A text that is too long is cut.
std::string to_bytes(const News& news);

// Takes bytes as they come, in pieces of any length, and gives the news that are complete.
class NewsReader {
 public:
  void feed(std::string_view bytes) { unread_ += bytes; }

  // The next piece of news; nothing while it has not come in full. Throws Error where the bytes are
  // no news, and has then forgotten them.
  std::optional<News> next();

 private:
  std::string unread_;
};

}  // namespace ringside::collectives
