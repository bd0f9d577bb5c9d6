// PreTokenizer: cuts a text into words. Byte-pair encoding then encodes each word separately, so no
// token crosses a cut.
//
//     as GPT-2 does    "I've 10 cats\n"   ->   I 've ␣10 ␣cats \n      (␣ is a space; it belongs to
//                                                                       the word after it)
//
// A tokenizer.json names one or more stages. Each stage cuts the pieces of the stage before it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "transformer/tokenizer/pattern.hpp"

namespace ringside::transformer {

using TakePiece = std::function<void(std::string_view piece)>;

// What happens to the matches of a pattern and to the text between them. Examples for the pattern
// "-" in "the-final--countdown":
enum class Delimiters {
  removed,               // the final countdown
  isolated,              // the - final - - countdown
  merged_with_previous,  // the- final- - countdown
  merged_with_next,      // the -final - -countdown
  contiguous,            // the - final -- countdown
};

// Cuts `text` and calls `take` with each piece; none is empty. With `invert`, the text between the
// matches is the delimiter.
void cut(std::string_view text, const Pattern& pattern, Delimiters delimiters, bool invert,
         const TakePiece& take);

class PreTokenizer {
 public:
  // From "pre_tokenizer" of a tokenizer.json: ByteLevel, or a Sequence of Split and Digits that
  // ends with ByteLevel. Throws Error that names what is there instead.
  explicit PreTokenizer(const Json& json);

  // Calls `take` with each word of `text`, which may be any bytes. A word is a view into `text`.
  // But if a space was put before it (add_prefix_space), it is valid only during the call.
  void words(std::string_view text, const TakePiece& take) const;

 private:
  struct Stage {
    Pattern pattern;
    Delimiters delimiters;
    bool invert;
    bool add_space;  // before every piece that does not begin with one
  };
  void add_split(const Json& json);
  void add_digits(const Json& json);
  void add_byte_level(const Json& json);
  void words_from(std::size_t stage, std::string_view text, const TakePiece& take) const;

  std::vector<Stage> stages_;
};

// The "pre_tokenizer" of GPT-2's tokenizer.json. With an expression, that expression cuts instead
// (Split, then ByteLevel).
Json byte_level_pre_tokenizer(const std::string& expression = "");

}  // namespace ringside::transformer
