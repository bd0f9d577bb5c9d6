#include "collectives/diagnostics/control_message.hpp"

#include <cstring>

#include "base/error.hpp"

namespace ringside::collectives {
namespace {

struct NewsHeader {
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
static_assert(sizeof(NewsHeader) == 96, "the layout is the wire format");

}  // namespace

std::string to_bytes(const News& news) {
  const std::string_view text = std::string_view(news.text).substr(0, longest_news_text);
  NewsHeader header;
  header.kind = news.kind;
  header.rank = news.rank;
  header.step = news.step;
  header.sequence = news.sequence;
  header.call = news.call;
  header.text_bytes = static_cast<std::uint32_t>(text.size());
  return std::string(reinterpret_cast<const char*>(&header), sizeof header).append(text);
}

std::optional<News> NewsReader::next() {
  if (unread_.size() < sizeof(NewsHeader)) return std::nullopt;
  NewsHeader header;
  std::memcpy(static_cast<void*>(&header), unread_.data(), sizeof header);
  const bool known = header.kind >= News::goodbye && header.kind <= News::position;
  if (header.magic != NewsHeader::expected_magic || !known ||
      header.text_bytes > longest_news_text) {
    unread_.clear();
    fail("news that make no sense: do the ranks run different versions?");
  }
  if (unread_.size() < sizeof header + header.text_bytes) return std::nullopt;
  News news{static_cast<News::Kind>(header.kind),
            header.rank,
            header.step,
            header.sequence,
            header.call,
            unread_.substr(sizeof header, header.text_bytes)};
  unread_.erase(0, sizeof header + header.text_bytes);
  return news;
}

}  // namespace ringside::collectives
