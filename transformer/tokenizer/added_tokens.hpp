// Tokens that stand for a text of their own, such as <|endoftext|>: found before the text is cut
// into words, and never taken apart.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ringside::transformer {

// With the flags of a tokenizer.json.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special =
      false;  // no text, but a sign for the model; may be left out where ids are turned into text
  bool normalized = false;   // looked for only after those that are not
  bool strip_left = false;   // swallows the white space before it
  bool strip_right = false;  // ... and behind it
};

// Looks for many tokens at once: a tree of their bytes.
class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // Gives `text` from left to right, in parts: what is no token to `plain` (never empty), the id of
  // what is one to `token`. Where several begin at one place, the longest is found.
  void split(std::string_view text, const std::function<void(std::string_view)>& plain,
             const std::function<void(std::int32_t)>& token) const;

 private:
  const AddedToken* longest_at(std::string_view text) const;

  struct Node {
    std::int32_t number = 0;  // 0 is the root
    std::int32_t token = -1;  // which one ends here
  };
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::uint64_t, Node> tree_;  // by the number of the node above, and the byte
  std::array<bool, 256> begins_{};                // whether a token begins with this byte
};

}  // namespace ringside::transformer
