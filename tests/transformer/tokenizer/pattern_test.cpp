#include "transformer/tokenizer/pattern.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text/utf8.hpp"
#include "transformer/tokenizer/pre_tokenizer.hpp"

using namespace ringside;
using namespace ringside::transformer;

namespace {

using Pieces = std::vector<std::string>;

Pieces pieces(std::string_view text, const Pattern& pattern,
              Delimiters delimiters = Delimiters::isolated, bool invert = false) {
  Pieces found;
  cut(text, pattern, delimiters, invert,
      [&](std::string_view piece) { found.emplace_back(piece); });
  return found;
}

std::string refusal(std::string_view expression) {
  try {
    Pattern::regex(expression);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a text is cut at a delimiter in five ways") {
  const Pattern dash = Pattern::literal("-");
  const auto in = [&](Delimiters delimiters) {
    return pieces("the-final--countdown", dash, delimiters);
  };
  CHECK(in(Delimiters::removed) == Pieces{"the", "final", "countdown"});
  CHECK(in(Delimiters::isolated) == Pieces{"the", "-", "final", "-", "-", "countdown"});
  CHECK(in(Delimiters::merged_with_previous) == Pieces{"the-", "final-", "-", "countdown"});
  CHECK(in(Delimiters::merged_with_next) == Pieces{"the", "-final", "-", "-countdown"});
  CHECK(in(Delimiters::contiguous) == Pieces{"the", "-", "final", "--", "countdown"});
  CHECK(pieces("the-final--countdown", dash, Delimiters::removed, true) == Pieces{"-", "-", "-"});
  CHECK(pieces("-a-", dash, Delimiters::merged_with_previous) == Pieces{"-", "a-"});
  CHECK(pieces("-a-", dash, Delimiters::merged_with_next) == Pieces{"-a", "-"});
  CHECK(pieces("", dash).empty());
}

TEST_CASE("expressions match Unicode characters") {
  CHECK(pieces("größe 12 日本٣", Pattern::regex("\\p{L}+|\\p{N}")) ==
        Pieces{"größe", " ", "1", "2", " ", "日本", "٣"});
  CHECK(pieces("a\u00a0\u3000b\u180ec", Pattern::regex("\\s+")) ==
        Pieces{"a", "\u00a0\u3000", "b\u180ec"});
  CHECK(pieces("a  b", Pattern::regex("\\s+(?!\\S)|\\s+")) == Pieces{"a", " ", " ", "b"});
  CHECK(pieces("a.c", Pattern::literal(".")) == Pieces{"a", ".", "c"});
  CHECK(pieces("abc", Pattern::regex("x*")) == Pieces{"a", "b", "c"});  // a match may be empty
  CHECK(pieces("äöü", Pattern::regex("x*")) == Pieces{"ä", "ö", "ü"});
}

TEST_CASE("bytes that are not UTF-8 match nothing and end the text before them") {
  CHECK(pieces("ab\xff\xc3 cd\xe2\x82", Pattern::regex("\\p{L}+|\\s")) ==
        Pieces{"ab", "\xff\xc3", " ", "cd", "\xe2\x82"});
  CHECK(utf8_prefix("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82") == 10);
  for (const char* wrong : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe0\x9f\xbf", "\xed\xa0\x80",
                            "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    CAPTURE(wrong);
    CHECK(utf8_prefix(wrong) == 0);
  }
}

TEST_CASE("syntax that Oniguruma and PCRE2 spell differently is translated") {
  CHECK(to_pcre2("[^\\s\\p{L}\\p{N}]?\\p{L}+") == "[^\\p{White_Space}\\p{L}\\p{N}]?\\p{L}+");
  CHECK(to_pcre2("\\S\\d\\D\\v\\r\\u3042\\x41\\x{1F642}\\.\\\\") ==
        "\\P{White_Space}\\p{Nd}\\P{Nd}\\x0b\\r\\x{3042}\\x41\\x{1F642}\\.\\\\");
  CHECK(to_pcre2("(?i:'s|'t)(?!x)(?<=y)\\p{N}{1,3}|[+*?^$]") ==
        "(?i:'s|'t)(?!x)(?<=y)\\p{N}{1,3}|[+*?^$]");
}

TEST_CASE("syntax with different meanings in the two libraries is refused by name") {
  const auto has = [](const char* expression, const char* what) {
    CHECK(refusal(expression) ==
          fmt::format("the expression {} has {}, which Ringside does not translate", expression,
                      what));
  };
  has("\\h+", "\\h");
  has("\\w+", "\\w");
  has("(a)\\1", "\\1");
  has("^a", "the anchor ^");
  has("a$", "the anchor $");
  has("(*UTF)a", "a verb, (*...)");
  has("(?m:.)", "the group (?m...");
  has("(?P<x>a)", "the group (?P...");
  has("a{,3}", "a repeat without a lower bound, {,n}");
  has("\\p{N}{1,3}+",
      "a + after {m,n}, which is a second repeat in one library and possessive in the other");
  has("[a[b]]", "a class within a class");
  has("[a&&b]", "an intersection of classes, &&");
  has("[]a]", "a ] at the beginning of a class");
  has("\\u12", "a \\u without four digits");
  has("\\xff", "a \\x that is not two digits up to 7f");
  CHECK(refusal("(a") == "the expression (a cannot be understood: missing closing parenthesis");
  CHECK(refusal("\\p{Elvish}")
            .starts_with("the expression \\p{Elvish} cannot be understood: unknown property"));
  CHECK(
      refusal("a\\").starts_with("the expression a\\ cannot be understood: \\ at end of pattern"));
  CHECK(refusal("\\p{L").starts_with("the expression \\p{L cannot be understood: "));
}

TEST_CASE("exponential backtracking is stopped") {
  const std::string text = std::string(40, 'a') + "b";
  CHECK_THROWS_WITH_AS(
      pieces(text, Pattern::regex("(?:a+)+[cd]")),
      "the expression (?:a+)+[cd] is too costly for this text: match limit exceeded", Error);
}

TEST_CASE("long runs of equal characters take linear time") {
  const auto start = Clock::now();
  const Pattern gpt2 = Pattern::regex(R"( ?\p{L}+|\s*[\r\n]+|\s+(?!\S)|\s+)");
  CHECK(pieces(std::string(2'000'000, 'a'), gpt2).size() == 1);
  CHECK(pieces(std::string(2'000'000, ' ') + "a", gpt2).size() == 2);
  CHECK(pieces(std::string(300'000, '\xff'), gpt2).size() == 1);
  std::string broken;
  for (int i = 0; i < 100'000; ++i)
    broken +=
        "\xff"
        "a";
  CHECK(pieces(broken, gpt2).size() == 200'000);
  CHECK(seconds_since(start) < 20);
}
