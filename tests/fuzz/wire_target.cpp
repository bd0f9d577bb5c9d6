// Everything that judges bytes from outside, fed with bytes: message headers, greetings, news, node
// lists.
//
// Whatever comes, a parser may only accept it or throw Error, with a text that is short and fit for
// a terminal. What is accepted must mean the same when it is written and read again. The sanitizers
// watch the rest.
//
// The entry point is libFuzzer's, so that it can be linked with that; wire_driver.cpp is a small
// fuzzer of our own that needs no other compiler.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "collectives/bootstrap/handshake.hpp"
#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/call.hpp"
#include "collectives/diagnostics/call_history.hpp"
#include "collectives/diagnostics/control_message.hpp"

using namespace ringside;
using namespace ringside::collectives;

namespace {

void check(bool holds, const char* what) {
  if (holds) return;
  fmt::print(stderr, "the fuzz target found a bug: {}\n", what);
  std::abort();
}

void check_text(std::string_view text) {
  check(!text.empty() && text.size() < 8192, "a text that is empty or too long");
  check(text.find_first_of(std::string_view("\0\x1b\r\n", 4)) == text.npos,
        "a text with control characters");
}

// Runs `parse`; true if it throws no Error. The text is checked, unless the bytes are the user's
// own.
template <class Parse>
bool accepts(Parse parse, bool from_outside = true) {
  try {
    parse();
    return true;
  } catch (const Error& error) {
    if (from_outside) check_text(error.what());
    return false;
  }
}

template <class Words>
Words words_of(std::string_view bytes) {
  Words words;
  std::memcpy(static_cast<void*>(&words), bytes.data(), std::min(bytes.size(), sizeof words));
  return words;
}

void message(std::string_view bytes) {
  const auto seen = words_of<MessageHeader>(bytes);
  const bool same = accepts([&] { check_message(MessageHeader{}, seen, 0, 1); });
  check(same == (seen == MessageHeader{}), "a header is accepted that is not the expected one");
  accepts([&] { check_message(seen, seen, 0, 1); });
  check_text(describe(seen.call));
}

void greeting(std::string_view bytes) {
  const Key key = hash_of("fuzz");
  const auto hello = words_of<Hello>(bytes);
  const auto reason = reason_to_turn_away(hello, key);
  check(reason.has_value() == (hello.magic != Hello::expected_magic ||
                               hello.version != Hello::our_version || hello.key != key),
        "a stranger is taken for a member");
  if (reason) check_text(*reason);

  const auto answer = words_of<Answer>(bytes);
  if (!plausible(answer, 4)) return;
  check(answer.bytes <= 1 << 20, "room is kept for more than a rank 0 would send");
  const auto body = bytes.substr(std::min(bytes.size(), sizeof answer));
  accepts([&] { check(table_from(answer, body, 4).size() == 4, "a table of another size"); });
}

// The news in `bytes`, fed in pieces of `piece` bytes, written again.
std::string news_again(std::string_view bytes, std::size_t piece) {
  NewsReader reader;
  std::string again;
  accepts([&] {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
      reader.feed(bytes.substr(0, piece));
      while (const auto news = reader.next()) {
        check(news->text.size() <= longest_news_text, "news with a text that is too long");
        const auto history = CallHistory::from_bytes(news->text);
        check(history.last() - history.first() < CallHistory::capacity,
              "a history that is too long");
        if (history.first() != 0)
          check(history.bytes() == news->text, "a history that changes on its way");
        history.parted_from(CallHistory{});
        again += to_bytes(*news);
      }
    }
  });
  return again;
}

void news(std::string_view bytes) {
  const std::string whole = news_again(bytes, bytes.size() + 1);
  check(whole == news_again(bytes, 7), "news that depend on the pieces they come in");
  check(whole == news_again(whole, 64), "news that change on their way");
}

void rank_info(std::string_view bytes) {
  const std::string text(bytes.substr(0, bytes.find('\0')));
  accepts(
      [&] {
        check(first_host_of(text).size() <= text.size(), "a host that is longer than its list");
      },
      false);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                           "MASTER_PORT", "RINGSIDE_CONNECT_TIMEOUT"}) {
    ::setenv("RANK", "1", 1), ::setenv("WORLD_SIZE", "2", 1);
    ::setenv(name, text.c_str(), 1);
    accepts(
        [] {
          const RankInfo here = rank_info_from_environment();
          check(here.rank >= 0 && here.rank < here.size, "a rank outside of its world");
        },
        false);
    ::unsetenv(name);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1,
                               size - 1);  // the first byte says for whom
  switch (data[0] % 4) {
    case 0:
      message(bytes);
      break;
    case 1:
      greeting(bytes);
      break;
    case 2:
      news(bytes);
      break;
    default:
      rank_info(bytes);
      break;
  }
  return 0;
}
