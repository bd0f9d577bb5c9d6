#include "transformer/tokenizer/added_tokens.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ringside::transformer {
namespace {

// Unicode's property White_Space.
constexpr std::string_view white_space[] = {
    "\t",     "\n",     "\v",     "\f",     "\r",     " ",      "\u0085", "\u00a0", "\u1680",
    "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008",
    "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};

// The number of bytes of white space at the beginning of `text`, or at its end.
enum class Edge { beginning, end };
std::size_t white_space_at(Edge edge, std::string_view text) {
  const bool at_end = edge == Edge::end;
  const std::size_t whole = text.size();
  const auto is_there = [&](std::string_view space) {
    return at_end ? text.ends_with(space) : text.starts_with(space);
  };
  for (const std::string_view* space;
       (space = std::find_if(std::begin(white_space), std::end(white_space), is_there)) !=
       std::end(white_space);)
    at_end ? text.remove_suffix(space->size()) : text.remove_prefix(space->size());
  return whole - text.size();
}

std::uint64_t edge_key(std::int32_t from, char byte) {
  return static_cast<std::uint64_t>(from) << 8 | static_cast<std::uint8_t>(byte);
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    begins_[static_cast<std::uint8_t>(content.front())] = true;
    Node node, *last = nullptr;
    for (const char byte : content) {
      const Node fresh{static_cast<std::int32_t>(trie_.size()) + 1, -1};
      last = &trie_.try_emplace(edge_key(node.number, byte), fresh).first->second;
      node = *last;
    }
    last->token = static_cast<std::int32_t>(i);
  }
}

const AddedToken* AddedTokens::longest_at(std::string_view text) const {
  if (!begins_[static_cast<std::uint8_t>(text.front())]) return nullptr;
  const AddedToken* longest = nullptr;
  std::int32_t number = 0;
  for (const char byte : text) {
    const auto found = trie_.find(edge_key(number, byte));
    if (found == trie_.end()) break;
    if (found->second.token >= 0) longest = &tokens_[static_cast<std::size_t>(found->second.token)];
    number = found->second.number;
  }
  return longest;
}

void AddedTokens::split(std::string_view text, const std::function<void(std::string_view)>& plain,
                        const std::function<void(std::int32_t)>& token) const {
  std::size_t done = 0;  // text before this position has been passed on
  for (std::size_t i = 0; i < text.size() && !tokens_.empty();) {
    const AddedToken* found = longest_at(text.substr(i));
    if (found == nullptr) {
      ++i;
      continue;
    }
    std::size_t begin = std::max(i, done), end = i + found->content.size();
    i = end;
    if (found->strip_left) begin -= white_space_at(Edge::end, text.substr(done, begin - done));
    if (found->strip_right) end += white_space_at(Edge::beginning, text.substr(end));
    if (begin > done) plain(text.substr(done, begin - done));
    token(found->id);
    done = std::max(done, end);
  }
  if (done < text.size()) plain(text.substr(done));
}

}  // namespace ringside::transformer
