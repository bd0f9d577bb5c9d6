// The fuzz target for all parsers of bytes from outside: message headers, handshakes, control
// messages, and the variables of launchers.
//
// A parser must accept its input or throw Error, with a short text that is fit for a terminal. An
// accepted input must mean the same when it is written and read again. The sanitizers check the
// rest.
//
// The entry point is libFuzzer's, so it can be linked with that library. wire_driver.cpp is a small
// fuzzer of our own, which needs no other compiler.
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
#include "collectives/transport/message_header.hpp"

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

// Runs `parse`; true if it throws no Error. Checks the text of an Error, unless the bytes come from
// the user.
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

template <class T>
T from_bytes(std::string_view bytes) {
  T value;
  std::memcpy(static_cast<void*>(&value), bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

void message(std::string_view bytes) {
  const auto seen = from_bytes<MessageHeader>(bytes);
  const bool same = accepts([&] { check_message(MessageHeader{}, seen, 0, 1); });
  check(same == (seen == MessageHeader{}), "check_message accepts an unexpected header");
  accepts([&] { check_message(seen, seen, 0, 1); });
  check_text(describe(seen.call));
}

void handshake(std::string_view bytes) {
  const Key key = hash_of("fuzz");
  const auto seen = from_bytes<Handshake>(bytes);
  const auto reason = reason_to_turn_away(seen, key);
  check(reason.has_value() == (seen.magic != Handshake::expected_magic ||
                               seen.version != Handshake::our_version || seen.key != key),
        "a stranger is accepted as a member");
  if (reason) check_text(*reason);

  const auto answer = from_bytes<Answer>(bytes);
  if (!plausible(answer, 4)) return;
  check(answer.bytes <= 1 << 20, "memory is reserved for more than rank 0 would send");
  const auto body = bytes.substr(std::min(bytes.size(), sizeof answer));
  accepts([&] { check(table_from(answer, body, 4).size() == 4, "a table of another size"); });
}

// The control messages in `bytes`, read in pieces of `piece` bytes and written again.
std::string rewritten(std::string_view bytes, std::size_t piece) {
  ControlMessageReader reader;
  std::string again;
  accepts([&] {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
      reader.feed(bytes.substr(0, piece));
      while (const auto message = reader.next()) {
        check(message->text.size() <= longest_control_text, "a control message is too long");
        const auto history = CallHistory::from_bytes(message->text);
        check(history.last() - history.first() < CallHistory::capacity, "a history is too long");
        if (history.first() != 0)
          check(history.bytes() == message->text, "a history changes when it is written again");
        history.parted_from(CallHistory{});
        again += to_bytes(*message);
      }
    }
  });
  return again;
}

void control_messages(std::string_view bytes) {
  const std::string whole = rewritten(bytes, bytes.size() + 1);
  check(whole == rewritten(bytes, 7), "control messages depend on how their bytes are divided");
  check(whole == rewritten(whole, 64), "control messages change when they are written again");
}

void rank_info(std::string_view bytes) {
  const std::string text(bytes.substr(0, bytes.find('\0')));
  accepts(
      [&] { check(first_host_of(text).size() <= text.size(), "a host is longer than its list"); },
      false);
  accepts([&] { check(tasks_of_node(text, 3) > 0, "a node has no tasks"); }, false);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                           "MASTER_PORT", "RINGSIDE_CONNECT_TIMEOUT"}) {
    ::setenv("RANK", "1", 1), ::setenv("WORLD_SIZE", "2", 1);
    ::setenv(name, text.c_str(), 1);
    accepts(
        [] {
          const RankInfo here = rank_info_from_environment();
          check(here.rank >= 0 && here.rank < here.size, "a rank is outside of its world");
        },
        false);
    ::unsetenv(name);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // The first byte selects the parser.
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      message(bytes);
      break;
    case 1:
      handshake(bytes);
      break;
    case 2:
      control_messages(bytes);
      break;
    default:
      rank_info(bytes);
      break;
  }
  return 0;
}
