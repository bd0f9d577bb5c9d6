#include "collectives/diagnostics/control_message.hpp"

#include <cstring>

#include "base/error.hpp"

namespace ringside::collectives {
namespace {

struct ControlHeader {
  static constexpr std::uint32_t expected_magic = 0x53574e52;  // "RNWS"
  std::uint32_t magic = expected_magic;
  std::uint32_t kind = 0;
  std::int32_t rank = -1;
  std::uint32_t step = 0;
  std::uint64_t sequence = 0;
  Call call;
  std::uint32_t text_bytes = 0;
  std::uint32_t unused = 0;
};
static_assert(sizeof(ControlHeader) == 96, "the layout is the wire format");

}  // namespace

std::string to_bytes(const ControlMessage& message) {
  const std::string_view text = std::string_view(message.text).substr(0, longest_control_text);
  const ControlHeader header{.kind = message.kind,
                             .rank = message.rank,
                             .step = message.step,
                             .sequence = message.sequence,
                             .call = message.call,
                             .text_bytes = static_cast<std::uint32_t>(text.size())};
  return std::string(reinterpret_cast<const char*>(&header), sizeof header).append(text);
}

std::optional<ControlMessage> ControlMessageReader::next() {
  if (unread_.size() < sizeof(ControlHeader)) return std::nullopt;
  ControlHeader header;
  std::memcpy(static_cast<void*>(&header), unread_.data(), sizeof header);
  const bool known =
      header.kind >= ControlMessage::goodbye && header.kind <= ControlMessage::failed_elsewhere;
  if (header.magic != ControlHeader::expected_magic || !known ||
      header.text_bytes > longest_control_text) {
    unread_.clear();
    fail("bytes that are not control messages: do the ranks run different versions?");
  }
  if (unread_.size() < sizeof header + header.text_bytes) return std::nullopt;
  ControlMessage message{static_cast<ControlMessage::Kind>(header.kind),
                         header.rank,
                         header.step,
                         header.sequence,
                         header.call,
                         unread_.substr(sizeof header, header.text_bytes)};
  unread_.erase(0, sizeof header + header.text_bytes);
  return message;
}

}  // namespace ringside::collectives
