// Added tokens, such as <|endoftext|>: fixed strings that are found before the text is cut into
// words, and never split.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ringside::transformer {

// One entry of "added_tokens" in a tokenizer.json.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;      // not text but a control token; decode() may leave it out
  bool normalized = false;   // searched for after all tokens that are not normalized
  bool strip_left = false;   // the match includes white space before it
  bool strip_right = false;  // the match includes white space after it
};

// Finds many tokens at once, with a trie of their bytes.
class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // Splits `text` from left to right: calls `token` with the id of each token found, and `plain`
  // with each (non-empty) stretch of text between them. If several tokens match at a position, the
  // longest wins.
  void split(std::string_view text, const std::function<void(std::string_view)>& plain,
             const std::function<void(std::int32_t)>& token) const;

 private:
  const AddedToken* longest_at(std::string_view text) const;

  struct Node {
    std::int32_t number = 0;  // 0 is the root
    std::int32_t token = -1;  // index of the token that ends here; -1: none
  };
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::uint64_t, Node> trie_;  // by the number of the parent node, and the byte
  std::array<bool, 256> begins_{};                // whether a token begins with this byte
};

}  // namespace ringside::transformer
