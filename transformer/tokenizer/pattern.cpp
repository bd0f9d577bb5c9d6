#define PCRE2_CODE_UNIT_WIDTH 8
#include "transformer/tokenizer/pattern.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <regex>
#include <vector>

#include <pcre2.h>

#include "base/error.hpp"
#include "base/text/utf8.hpp"

namespace ringside::transformer {
namespace {

std::string message_of(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// How one element of Oniguruma's syntax is written in PCRE2's. The first rule that matches counts;
// an element without a rule is a character that is the same in both.
struct Rule {
  enum Place { anywhere, outside_class, in_class };
  Place place;
  std::regex element;
  const char* written;            // $& is the element itself, $1 what its brackets hold
  const char* refused = nullptr;  // why it is not translated, instead
};

const std::vector<Rule>& rules() {
  using enum Rule::Place;
  static const std::vector<Rule> all = {
      // Escapes. PCRE2's own \s also matches U+180E. \xhh is a byte in Oniguruma and a character in
      // PCRE2, which are the same up to 7f. The {name} of a property is no repeat.
      {anywhere, std::regex(R"(\\s)"), R"(\p{White_Space})"},
      {anywhere, std::regex(R"(\\S)"), R"(\P{White_Space})"},
      {anywhere, std::regex(R"(\\d)"), R"(\p{Nd})"},
      {anywhere, std::regex(R"(\\D)"), R"(\P{Nd})"},
      {anywhere, std::regex(R"(\\v)"), R"(\x0b)"},
      {anywhere, std::regex(R"(\\u([0-9A-Fa-f]{4}))"), R"(\x{$1})"},
      {anywhere, std::regex(R"(\\u)"), "", R"(a \u without four digits)"},
      {anywhere, std::regex(R"(\\x(\{[^}]{0,99}\}?|[0-7][0-9A-Fa-f]))"), "$&"},
      {anywhere, std::regex(R"(\\x)"), "", R"(a \x that is not two digits up to 7f)"},
      {anywhere, std::regex(R"(\\[pP](\{[^}]{0,99}\}?)?)"), "$&"},
      {anywhere, std::regex(R"(\\[^A-Za-z0-9]|\\[rntfea])"), "$&"},
      {anywhere, std::regex(R"(\\[A-Za-z0-9])"), "", "$&"},
      {outside_class, std::regex(R"([\^$])"), "", "the anchor $&"},
      {outside_class, std::regex(R"(\(\*)"), "", "a verb, (*...)"},
      {outside_class, std::regex(R"(\(\?([:=!>]|<[=!]|-?i[:)]))"), "$&"},
      {outside_class, std::regex(R"(\(\?[^]?)"), "", "the group $&..."},
      {outside_class, std::regex(R"(\{,)"), "", "a repeat without a lower bound, {,n}"},
      {outside_class, std::regex(R"(\}\+)"), "",
       "a + after {m,n}, which is a second repeat in one library and possessive in the other"},
      {outside_class, std::regex(R"(\[\^?\])"), "", "a ] at the beginning of a class"},
      {outside_class, std::regex(R"(\[\^?)"), "$&"},
      {in_class, std::regex(R"(\[)"), "", "a class within a class"},
      {in_class, std::regex("&&"), "", "an intersection of classes, &&"},
  };
  return all;
}

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

// Translates one element after the other, and only tracks whether it is inside a [class]. An
// invalid expression stays invalid, and PCRE2 reports why.
std::string to_pcre2(std::string_view oniguruma) {
  std::string output;
  bool in_class = false;
  const char *at = oniguruma.data(), *const end = at + oniguruma.size();
  while (at != end) {
    std::cmatch element;
    const bool has_rules = std::string_view("\\^$({}[&").find(*at) != std::string_view::npos;
    const auto rule = std::find_if(rules().begin(), rules().end(), [&](const Rule& each) {
      return has_rules && each.place != (in_class ? Rule::outside_class : Rule::in_class) &&
             std::regex_search(at, end, element, each.element,
                               std::regex_constants::match_continuous);
    });
    if (rule == rules().end()) {
      if (*at == ']') in_class = false;
      output += *at++;
      continue;
    }
    if (rule->refused)
      fail("the expression {} has {}, which Ringside does not translate", oniguruma,
           element.format(rule->refused));
    if (*at == '[') in_class = true;
    output += element.format(rule->written);
    at += element.length();
  }
  return output;
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
      if (status < 0)
        fail("the expression {} is too costly for this text: {}", code_->source,
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
