// Cuts a text into words, which byte-pair encoding then takes one by one: no token reaches across a
// cut.
//
//     GPT-2's way    "I've 10 cats\n"   ->   I 've ␣10 ␣cats \n        ("␣" is a space: it goes with the word behind it)
//
// A tokenizer.json names one or more stages, and each stage cuts on in the pieces that the one
// before it left.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "transformer/tokenizer/pattern.hpp"

namespace ringside::transformer {

using TakePiece = std::function<void(std::string_view piece)>;

// What becomes of the matches of a pattern, and of what lies between them; with the pattern "-" on
// "the-final--countdown":
enum class Delimiters {
  removed,               // the final countdown
  isolated,              // the - final - - countdown
  merged_with_previous,  // the- final- - countdown
  merged_with_next,      // the -final - -countdown
  contiguous,            // the - final -- countdown
};

// Cuts `text` and gives the pieces, none of them empty, to `take`. With `invert` matches and what
// lies between change their parts.
void cut(std::string_view text, const Pattern& pattern, Delimiters delimiters, bool invert,
         const TakePiece& take);

class PreTokenizer {
 public:
  // From the "pre_tokenizer" of a tokenizer.json: ByteLevel, or a Sequence of Split and Digits that
  // ends with ByteLevel. Throws Error with a sentence that names what is there instead.
  explicit PreTokenizer(const nlohmann::ordered_json& said);

  // Gives the words of `text`, any bytes, to `take`. A word lies in `text` itself, unless a space
  // was put in front of it (add_prefix_space): then it is gone when `take` returns.
  void words(std::string_view text, const TakePiece& take) const;

 private:
  struct Stage {
    Pattern pattern;
    Delimiters delimiters;
    bool invert;
    bool add_space;  // in front of every piece that does not begin with one
  };
  void add_split(const nlohmann::ordered_json& said);
  void add_digits(const nlohmann::ordered_json& said);
  void add_byte_level(const nlohmann::ordered_json& said);
  void words_from(std::size_t stage, std::string_view text, const TakePiece& take) const;

  std::vector<Stage> stages_;
};

// GPT-2's way of cutting, as "pre_tokenizer" of a tokenizer.json; with an expression, that one
// instead (Split, then ByteLevel).
nlohmann::ordered_json byte_level_pre_tokenizer(const std::string& expression = "");

}  // namespace ringside::transformer
