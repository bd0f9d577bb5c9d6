#define PCRE2_CODE_UNIT_WIDTH 8
#include "transformer/tokenizer/pattern.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <limits>

#include <pcre2.h>

#include "base/error.hpp"
#include "transformer/tokenizer/utf8.hpp"

namespace ringside::transformer {
namespace {

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// From Oniguruma's words to PCRE2's, character by character. Knows whether it stands in a [class],
// and nothing else of the syntax: an expression that is broken stays so, and PCRE2 says how.
class Translation {
 public:
  explicit Translation(std::string_view said) : said_(said) {}

  std::string run() {
    while (at_ < said_.size()) in_class_ ? class_member() : element();
    return std::move(words_);
  }

 private:
  bool comes(std::string_view text) const { return said_.substr(at_).starts_with(text); }

  void copy(std::size_t bytes = 1) {
    words_ += said_.substr(at_, bytes);
    at_ += bytes;
  }

  [[noreturn]] void refuse(std::string_view what) const {
    fail("the expression {} has {}, which Ringside does not translate", said_, what);
  }

  void element() {
    const char next = said_[at_];
    if (next == '\\') return escape();
    if (next == '^' || next == '$') refuse(fmt::format("the anchor {}", next));
    if (comes("(*")) refuse("a verb, (*...)");
    if (comes("(?")) return group();
    if (comes("{,")) refuse("a repeat without a lower bound, {,n}");
    if (comes("}+"))
      refuse(
          "a + after {m,n}, which some take as another repeat and some as \"give nothing back\"");
    copy();
    if (next == '[') begin_class();
  }

  void group() {
    for (const std::string_view known :
         {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:", "(?i)", "(?-i)"}) {
      if (comes(known)) return copy(known.size());
    }
    refuse(fmt::format("the group {}...", said_.substr(at_, 3)));
  }

  void begin_class() {
    in_class_ = true;
    if (comes("^")) copy();
    if (comes("]")) refuse("a ] at the beginning of a class");
  }

  void class_member() {
    if (comes("\\")) return escape();
    if (comes("[")) refuse("a class within a class");
    if (comes("&&")) refuse("an intersection of classes, &&");
    if (comes("]")) in_class_ = false;
    copy();
  }

  void escape() {
    if (at_ + 1 == said_.size()) return copy();
    const char letter = said_[at_ + 1];
    switch (letter) {
      case 's':
        return say("\\p{White_Space}");  // PCRE2's own \s is wider by U+180E
      case 'S':
        return say("\\P{White_Space}");
      case 'd':
        return say("\\p{Nd}");
      case 'D':
        return say("\\P{Nd}");
      case 'v':
        return say("\\x0b");
      case 'u':
        return code_point();
      case 'x':
        return hexadecimal();
      case 'p':
      case 'P':
        return with_name(2);
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'e':
      case 'a':
        return copy(2);
      default:
        break;
    }
    if (std::isalnum(static_cast<unsigned char>(letter))) refuse(fmt::format("\\{}", letter));
    copy(2);
  }

  void say(std::string_view words) {
    words_ += words;
    at_ += 2;
  }

  // The escape of `length` characters, and the {name} behind it, whose braces are no repeat.
  void with_name(std::size_t length) {
    copy(length);
    if (!comes("{")) return;
    copy(std::min(said_.find('}', at_), said_.size() - 1) + 1 - at_);
  }

  bool are_hexadecimal(std::size_t from, std::size_t count) const {
    const std::string_view digits = said_.substr(std::min(from, said_.size()), count);
    return digits.size() == count && std::all_of(digits.begin(), digits.end(),
                                                 [](unsigned char c) { return std::isxdigit(c); });
  }

  void code_point() {
    if (!are_hexadecimal(at_ + 2, 4)) refuse("a \\u without four digits");
    words_ += fmt::format("\\x{{{}}}", said_.substr(at_ + 2, 4));
    at_ += 6;
  }

  // \x{...} is a character for both; \xhh is a byte for the one and a character for the other, the
  // same up to 7f.
  void hexadecimal() {
    if (comes("\\x{")) return with_name(2);
    if (!are_hexadecimal(at_ + 2, 2) || said_[at_ + 2] > '7')
      refuse("a \\x that is not two digits up to 7f");
    copy(4);
  }

  std::string_view said_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string words_;
};

// What a match is written into. One for each thread, as a Pattern may be used by many at a time.
struct Scratch {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, 16 * 1024 * 1024, nullptr);
  Scratch() { pcre2_jit_stack_assign(context, nullptr, stack); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
};

// Going back over a long run of spaces is a step for each; what takes many times that is an
// expression that explodes.
std::uint32_t most_steps(std::size_t bytes) {
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(10'000'000 + 16 * bytes, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

std::string to_pcre2(std::string_view oniguruma) {
  return Translation(oniguruma).run();
}

struct Pattern::Code {
  std::string said;
  pcre2_code* compiled = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(compiled); }
};

Pattern::Pattern(std::string_view said, std::string_view compiled, unsigned options) {
  const auto code = std::make_shared<Code>();
  code->said = said;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(
      context.get(),
      PCRE2_NEWLINE_LF);  // what a . does not match, however the library was configured
  int error = 0;
  PCRE2_SIZE place = 0;
  code->compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(compiled.data()), compiled.size(),
                                 options | PCRE2_UTF, &error, &place, context.get());
  require(code->compiled != nullptr, "the expression {} cannot be understood: {}", said,
          message_of(error));
  pcre2_jit_compile(
      code->compiled,
      PCRE2_JIT_COMPLETE);  // where there is no JIT it is interpreted: slower, but the same
  code_ = code;
}

Pattern Pattern::regex(std::string_view oniguruma) {
  return {oniguruma, to_pcre2(oniguruma), PCRE2_UCP};
}

Pattern Pattern::literal(std::string_view text) {
  return {text, text, PCRE2_LITERAL};
}

// PCRE2 could find its way around bytes that are not UTF-8 (PCRE2_MATCH_INVALID_UTF), but without a
// JIT it would look through the rest of the text for them before every match. So the text is looked
// through once, here, and PCRE2 is given what is UTF-8.
void Pattern::find_all(std::string_view text,
                       const std::function<void(std::size_t, std::size_t)>& found) const {
  static thread_local Scratch scratch;
  pcre2_set_match_limit(scratch.context, most_steps(text.size()));
  constexpr std::size_t nowhere = std::numeric_limits<std::size_t>::max();
  const PCRE2_SIZE* match = pcre2_get_ovector_pointer(scratch.match);
  for (std::size_t start = 0; start < text.size();
       ++start) {  // one further: over the byte that ended the stretch
    const std::string_view stretch = text.substr(start, utf8_prefix(text.substr(start)));
    std::size_t from = 0, last_end = nowhere;
    while (!stretch.empty() && from <= stretch.size()) {
      const int status =
          pcre2_match(code_->compiled, reinterpret_cast<PCRE2_SPTR>(stretch.data()), stretch.size(),
                      from, PCRE2_NO_UTF_CHECK, scratch.match, scratch.context);
      if (status == PCRE2_ERROR_NOMATCH) break;
      require(status >= 0, "the expression {} is too costly for this text: {}", code_->said,
              message_of(status));
      const std::size_t begin = match[0], end = match[1];
      if (begin == end && end == last_end) {
        from += std::max<std::size_t>(1, utf8_character(stretch.substr(from)));
        continue;
      }
      found(start + begin, start + end);
      from = last_end = end;
    }
    start += stretch.size();
  }
}

}  // namespace ringside::transformer
