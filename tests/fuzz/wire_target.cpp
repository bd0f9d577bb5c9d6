// The fuzz target for all parsers of bytes from outside: message headers, handshakes, control
// messages, and the variables of launchers.
//
// A parser must accept its input or throw Error, with a short text that is fit for a terminal. An
// accepted input must mean the same when it is written and read again. The sanitizers check the
// rest.
#include "tests/fuzz/target.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "collectives/bootstrap/rank_info.hpp"
#include "collectives/bootstrap/rendezvous/handshake.hpp"
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

// Whether `parse` throws no Error. Checks the text of an Error: the bytes come from outside.
template <class Parse>
bool accepts_or_says_why(Parse parse) {
  return fuzz::accepts([&] {
    try {
      parse();
    } catch (const Error& error) {
      check_text(error.what());
      throw;
    }
  });
}

template <class T>
T from_bytes(std::string_view bytes) {
  T value;
  std::memcpy(static_cast<void*>(&value), bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

bool message(std::string_view bytes) {
  const auto seen = from_bytes<MessageHeader>(bytes);
  const bool same = accepts_or_says_why([&] { check_message(MessageHeader{}, seen, 0, 1); });
  check(same == (seen == MessageHeader{}), "check_message accepts an unexpected header");
  accepts_or_says_why([&] { check_message(seen, seen, 0, 1); });
  check_text(describe(seen.call));
  return same;
}

bool handshake(std::string_view bytes) {
  const auto seen = from_bytes<Handshake>(bytes);
  const auto reason = reason_to_turn_away(seen);
  check(reason.has_value() ==
            (seen.magic != Handshake::expected_magic || seen.version != Handshake::our_version),
        "a stranger may go on");
  if (reason) check_text(*reason);
  check(!proves_key(from_bytes<Challenge>(bytes), seen, "fuzz"), "a stranger has proved the key");

  const auto answer = from_bytes<Answer>(bytes);
  if (!plausible(answer, 4)) return !reason;
  check(answer.bytes <= 1 << 20, "memory is reserved for more than rank 0 would send");
  const auto body = bytes.substr(std::min(bytes.size(), sizeof answer));
  return accepts_or_says_why(
      [&] { check(table_from(answer, body, 4).size() == 4, "a table of another size"); });
}

// The control messages in `bytes`, read in pieces of `piece` bytes and written again.
std::string rewritten(std::string_view bytes, std::size_t piece) {
  ControlMessageReader reader;
  std::string again;
  accepts_or_says_why([&] {
    for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
      reader.feed(bytes.substr(0, piece));
      while (const auto message = reader.next()) {
        check(message->text.size() <= longest_control_text, "a control message is too long");
        const auto history = CallHistory::from_bytes(message->text);
        check(history.last() - history.first() < CallHistory::capacity, "a history is too long");
        if (history.first() != 0)
          check(history.bytes() == message->text, "a history changes when it is written again");
        history.first_difference(CallHistory{});
        again += to_bytes(*message);
      }
    }
  });
  return again;
}

bool control_messages(std::string_view bytes) {
  const std::string whole = rewritten(bytes, bytes.size() + 1);
  check(whole == rewritten(bytes, 7), "control messages depend on how their bytes are divided");
  check(whole == rewritten(whole, 64), "control messages change when they are written again");
  return whole.size() == bytes.size();
}

// These texts come from the user's own launcher.
bool rank_info(std::string_view bytes) {
  using fuzz::accepts;
  const std::string text(bytes.substr(0, bytes.find('\0')));
  accepts(
      [&] { check(first_host_of(text).size() <= text.size(), "a host is longer than its list"); });
  bool valid = accepts([&] { check(tasks_of_node(text, 3) > 0, "a node has no tasks"); });
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                           "MASTER_PORT", "RINGSIDE_CONNECT_TIMEOUT"}) {
    ::setenv("RANK", "1", 1), ::setenv("WORLD_SIZE", "2", 1);
    ::setenv(name, text.c_str(), 1);
    valid &= accepts([] {
      const RankInfo here = rank_info_from_environment();
      check(here.rank >= 0 && here.rank < here.size, "a rank is outside of its world");
    });
    ::unsetenv(name);
  }
  return valid;
}

template <class T>
std::string bytes_of(const T& words) {
  return std::string(reinterpret_cast<const char*>(&words), sizeof words);
}

}  // namespace

namespace ringside::fuzz {

// The first byte selects the parser.
bool try_input(const std::string& input) {
  if (input.empty()) return false;
  const std::string_view bytes = std::string_view(input).substr(1);
  switch (static_cast<unsigned char>(input[0]) % 4) {
    case 0:
      return message(bytes);
    case 1:
      return handshake(bytes);
    case 2:
      return control_messages(bytes);
    default:
      return rank_info(bytes);
  }
}

std::vector<std::string> good_inputs() {
  Call call;
  call.collective = Collective::broadcast;
  call.count = 1000;
  call.label = Label("model.norm.weight");
  MessageHeader header;
  header.call = call;
  Handshake handshake;
  CallHistory history;
  for (std::uint64_t n = 1; n <= 60; ++n) history.add(n, call);
  ControlMessage position, cause, goodbye;
  position.kind = ControlMessage::position;
  position.text = history.bytes();
  cause.kind = ControlMessage::gave_up;
  cause.text = "rank 2 is gone";
  Answer table, refusal;
  table.bytes = 4 * sizeof(Address);
  refusal.kind = Answer::refusal;
  refusal.bytes = 5;
  return {std::string(1, '\0') + bytes_of(MessageHeader{}),
          std::string(1, '\0') + bytes_of(header),
          "\1" + bytes_of(handshake),
          "\1" + bytes_of(table) + std::string(4 * sizeof(Address), '1'),
          "\1" + bytes_of(refusal) + "no 12",
          "\2" + to_bytes(position) + to_bytes(goodbye) + to_bytes(cause),
          "\2" + to_bytes(cause),
          "\3node[03-07,9],login",
          "\3"
          "2(x3),1",
          "\3"
          "29500",
          "\3[fd00::1]"};
}

std::vector<std::string> words() {
  return {std::string(1, '\0'),
          std::string(4, '\0'),
          std::string(4, '\xff'),
          std::string(8, '\xff'),
          std::string("\xff\xff\xff\x7f", 4),
          std::string(200, 'x'),
          "\x1b[2J",
          "(x",
          "[",
          "]",
          ",",
          "-",
          "99999999999"};
}

void repair(std::string&) {}

}  // namespace ringside::fuzz
