#define PCRE2_CODE_UNIT_WIDTH 8
#include "transformer/tokenizer/pattern.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <limits>
#include <utility>

#include <pcre2.h>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace ringside::transformer {
namespace {

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// Translates an expression from Oniguruma's syntax to PCRE2's, one character at a time. It only
// tracks whether it is inside a [class]. An invalid expression stays invalid, and PCRE2 reports
// why.
class Translation {
 public:
  explicit Translation(std::string_view source) : source_(source) {}

  std::string run() {
    while (at_ < source_.size()) in_class_ ? class_member() : element();
    return std::move(output_);
  }

 private:
  bool comes(std::string_view text) const { return source_.substr(at_).starts_with(text); }

  void copy(std::size_t bytes = 1) {
    output_ += source_.substr(at_, bytes);
    at_ += bytes;
  }

  [[noreturn]] void refuse(std::string_view what) const {
    fail("the expression {} has {}, which Ringside does not translate", source_, what);
  }

  void element() {
    const char next = source_[at_];
    if (next == '\\') return escape();
    if (next == '^' || next == '$') refuse(fmt::format("the anchor {}", next));
    if (comes("(*")) refuse("a verb, (*...)");
    if (comes("(?")) return group();
    if (comes("{,")) refuse("a repeat without a lower bound, {,n}");
    if (comes("}+"))
      refuse(
          "a + after {m,n}, which is a second repeat in one library and possessive in the other");
    copy();
    if (next == '[') begin_class();
  }

  void group() {
    for (const std::string_view known :
         {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:", "(?i)", "(?-i)"}) {
      if (comes(known)) return copy(known.size());
    }
    refuse(fmt::format("the group {}...", source_.substr(at_, 3)));
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
    if (at_ + 1 == source_.size()) return copy();
    const char letter = source_[at_ + 1];
    // PCRE2's own \s also matches U+180E.
    constexpr std::pair<char, std::string_view> translations[] = {{'s', "\\p{White_Space}"},
                                                                  {'S', "\\P{White_Space}"},
                                                                  {'d', "\\p{Nd}"},
                                                                  {'D', "\\P{Nd}"},
                                                                  {'v', "\\x0b"}};
    for (const auto& [known, translated] : translations)
      if (letter == known) return emit(translated);
    if (letter == 'u') return code_point();
    if (letter == 'x') return hexadecimal();
    if (letter == 'p' || letter == 'P') return with_name(2);
    const bool is_same = std::string_view("rntfea").find(letter) != std::string_view::npos;
    if (!is_same && std::isalnum(static_cast<unsigned char>(letter)))
      refuse(fmt::format("\\{}", letter));
    copy(2);
  }

  void emit(std::string_view translated) {
    output_ += translated;
    at_ += 2;
  }

  // Copies an escape of `length` characters and the {name} after it, which is not a repeat.
  void with_name(std::size_t length) {
    copy(length);
    if (!comes("{")) return;
    copy(std::min(source_.find('}', at_), source_.size() - 1) + 1 - at_);
  }

  bool are_hexadecimal(std::size_t from, std::size_t count) const {
    const std::string_view digits = source_.substr(std::min(from, source_.size()), count);
    return digits.size() == count && std::all_of(digits.begin(), digits.end(),
                                                 [](unsigned char c) { return std::isxdigit(c); });
  }

  void code_point() {
    if (!are_hexadecimal(at_ + 2, 4)) refuse("a \\u without four digits");
    output_ += fmt::format("\\x{{{}}}", source_.substr(at_ + 2, 4));
    at_ += 6;
  }

  // \x{...} is a character in both. \xhh is a byte in Oniguruma and a character in PCRE2, which are
  // the same up to 7f.
  void hexadecimal() {
    if (comes("\\x{")) return with_name(2);
    if (!are_hexadecimal(at_ + 2, 2) || source_[at_ + 2] > '7')
      refuse("a \\x that is not two digits up to 7f");
    copy(4);
  }

  std::string_view source_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string output_;
};

// Buffers for matching. Each thread has its own, because many threads may use one Pattern.
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

// The match limit: backtracking over a long run of spaces takes one step per space, so only an
// expression with exponential backtracking needs many times that.
std::uint32_t most_steps(std::size_t bytes) {
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(10'000'000 + 16 * bytes, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

std::string to_pcre2(std::string_view oniguruma) {
  return Translation(oniguruma).run();
}

struct Pattern::Code {
  std::string source;
  pcre2_code* compiled = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(compiled); }
};

Pattern::Pattern(std::string_view source, std::string_view pcre2, unsigned options) {
  const auto code = std::make_shared<Code>();
  code->source = source;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  // A "." matches anything but LF, however the library was configured.
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  code->compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pcre2.data()), pcre2.size(),
                                 options | PCRE2_UTF, &error, &error_offset, context.get());
  require(code->compiled != nullptr, "the expression {} cannot be understood: {}", source,
          message_of(error));
  // Without a JIT, PCRE2 interprets the expression: slower, but with the same result.
  pcre2_jit_compile(code->compiled, PCRE2_JIT_COMPLETE);
  code_ = code;
}

Pattern Pattern::regex(std::string_view oniguruma) {
  return {oniguruma, to_pcre2(oniguruma), PCRE2_UCP};
}

Pattern Pattern::literal(std::string_view text) {
  return {text, text, PCRE2_LITERAL};
}

// PCRE2 can skip invalid UTF-8 itself (PCRE2_MATCH_INVALID_UTF), but without a JIT it would search
// the rest of the text for it before every match. So this function searches once, and passes only
// valid UTF-8 to PCRE2.
void Pattern::find_all(std::string_view text,
                       const std::function<void(std::size_t, std::size_t)>& found) const {
  static thread_local Scratch scratch;
  pcre2_set_match_limit(scratch.context, most_steps(text.size()));
  constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  const PCRE2_SIZE* match = pcre2_get_ovector_pointer(scratch.match);
  // ++start skips the byte that ended the stretch.
  for (std::size_t start = 0; start < text.size(); ++start) {
    const std::string_view stretch = text.substr(start, utf8_prefix(text.substr(start)));
    std::size_t from = 0, last_end = none;
    while (!stretch.empty() && from <= stretch.size()) {
      const int status =
          pcre2_match(code_->compiled, reinterpret_cast<PCRE2_SPTR>(stretch.data()), stretch.size(),
                      from, PCRE2_NO_UTF_CHECK, scratch.match, scratch.context);
      if (status == PCRE2_ERROR_NOMATCH) break;
      require(status >= 0, "the expression {} is too costly for this text: {}", code_->source,
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
