// A regular expression in a tokenizer.json, and where it matches in a text.
//
// Hugging Face's tokenizers understands such an expression as Oniguruma does (Ruby's dialect,
// Unicode), Ringside matches with PCRE2. Where the two say the same in different words (\s, \d,
// \u0020) the expression is translated; where they would disagree
// (\h, \w, ^, nested classes, ...) it is refused by name, for a tokenizer that cuts a text a little
// differently does worse than none. What is a letter is for each library's version of Unicode to
// say.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace ringside::transformer {

class Pattern {
 public:
  // Throws Error with a sentence where the expression is broken, or says something that Ringside
  // does not translate.
  static Pattern regex(std::string_view oniguruma);

  // Matches `text` itself.
  static Pattern literal(std::string_view text);

  // Calls `found(begin, end)` for every match in `text`, from left to right, without overlap. A
  // match may be empty, but not directly behind another. `text` is any bytes: nothing matches what
  // is not UTF-8, and a stretch of UTF-8 ends there as a text does. Takes time linear in the text,
  // unless the expression itself does not. Throws Error if it takes out of all proportion.
  void find_all(std::string_view text,
                const std::function<void(std::size_t begin, std::size_t end)>& found) const;

 private:
  Pattern(std::string_view said, std::string_view compiled, unsigned options);
  struct Code;
  std::shared_ptr<const Code> code_;
};

// The expression in PCRE2's words. Throws Error as Pattern::regex does. For tests and for the
// curious.
std::string to_pcre2(std::string_view oniguruma);

}  // namespace ringside::transformer
