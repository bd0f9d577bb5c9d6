// Pattern: a regular expression of a tokenizer.json.
//
// Hugging Face's tokenizers matches it with Oniguruma (Ruby's dialect, with Unicode); Ringside uses
// PCRE2. Syntax that differs only in spelling (\s, \d, \u0020) is translated. Syntax with a
// different meaning (\h, \w, ^, nested classes, ...) is refused by name: a tokenizer that cuts text
// slightly differently gives wrong ids without any error. Which characters are letters depends on
// each library's version of Unicode.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace ringside::transformer {

class Pattern {
 public:
  // Throws Error with one sentence if the expression is invalid or cannot be translated.
  static Pattern regex(std::string_view oniguruma);

  // Matches `text` itself.
  static Pattern literal(std::string_view text);

  // Calls `found(begin, end)` for every match in `text`, from left to right, without overlap. A
  // match may be empty, but not directly after another match. `text` may be any bytes. Bytes that
  // are not UTF-8 match nothing, and the UTF-8 before them ends there like a whole text. Takes time
  // linear in the text, unless the expression backtracks. Throws Error if it takes far too long.
  void find_all(std::string_view text,
                const std::function<void(std::size_t begin, std::size_t end)>& found) const;

 private:
  Pattern(std::string_view source, std::string_view pcre2, unsigned options);
  struct Code;
  std::shared_ptr<const Code> code_;
};

// The expression in PCRE2's syntax. Throws Error as Pattern::regex does. For tests.
std::string to_pcre2(std::string_view oniguruma);

}  // namespace ringside::transformer
