#include "transformer/data/token_file.hpp"

#include <string>

#include <doctest/doctest.h>

#include "base/error.hpp"
#include "tests/transformer/temporary_directory.hpp"

using namespace ringside;
using namespace ringside::transformer;

namespace {

// The error message of read_tokens() without the path; "accepted" if there is none.
std::string refusal_of(const std::string& name, const std::string& content) {
  TemporaryDirectory directory;
  const auto path = directory.write(name, content);
  try {
    read_tokens(path, 4);
  } catch (const Error& error) {
    const std::string message = error.what(),
                      start = "cannot read tokens from " + path.string() + ": ";
    REQUIRE(message.starts_with(start));
    return message.substr(start.size());
  }
  return "accepted";
}

}  // namespace

TEST_CASE("tokens are read from JSON, and from streams that are cut into sequences") {
  TemporaryDirectory directory;
  CHECK(read_tokens(directory.write("a.json", "[[1, 2, 3], [4, 5]]"), 4) ==
        std::vector<Tokens>{{1, 2, 3}, {4, 5}});
  CHECK(read_tokens(directory.write("b.json", " [7, 8]\n"), 4) == std::vector<Tokens>{{7, 8}});
  const std::string stream("\1\0\2\0\3\0\4\0\5\1\6\0", 12);
  CHECK(read_tokens(directory.write("c.u16", stream), 4) ==
        std::vector<Tokens>{{1, 2, 3, 4}, {261, 6}});
  CHECK(read_tokens(directory.write("d.u16", stream), 5) ==
        std::vector<Tokens>{{1, 2, 3, 4, 261}});  // a last sequence of one token is dropped
  CHECK(read_tokens(directory.write("e.u32", stream), 4) ==
        std::vector<Tokens>{{0x20001, 0x40003, 0x60105}});
}

TEST_CASE("an invalid token file is refused with the reason") {
  CHECK(refusal_of("a.txt", "1 2 3") ==
        "its name must end in .json, .u16 or .u32, which gives the format");
  CHECK(refusal_of("a.json", "") == "it is empty");
  CHECK(refusal_of("a.json", "[[1, 2")
            .starts_with("parse error at line 1, column 7: syntax error while parsing array"));
  CHECK(refusal_of("a.json", std::string("[[1, 2]]\0[[3]]", 14))
            .starts_with("parse error at line 1, column 9: syntax error while parsing value - "
                         "unexpected NUL byte"));
  CHECK(refusal_of("a.json", "{}") ==
        "a list of sequences is expected, such as [[5, 17, 2], [8, 1]]");
  CHECK(refusal_of("a.json", "[]") ==
        "a list of sequences is expected, such as [[5, 17, 2], [8, 1]]");
  CHECK(refusal_of("a.json", "[[1], []]") == "sequence 1 is empty");
  CHECK(refusal_of("a.json", "[[1], 2]") == "sequence 1 is not a list of token ids");
  CHECK(refusal_of("a.json", "[[1, -2]]") ==
        "sequence 0 has -2 at position 1, which is not a token id");
  CHECK(refusal_of("a.json", "[1, 2.5]") ==
        "sequence 0 has 2.5 at position 1, which is not a token id");
  CHECK(refusal_of("a.json", "[[1, 2147483648]]") ==
        "sequence 0 has 2147483648 at position 1, which is not a token id");
  CHECK(refusal_of("a.u16", "abc") == "its 3 bytes are not a whole number of tokens of 2 bytes");
  CHECK(refusal_of("a.u32", "\xff\xff\xff\xff") ==
        "it has 4294967295 at position 0, which is not a token id");
  CHECK_THROWS_WITH_AS(read_tokens("/nowhere/a.json", 4),
                       "cannot read tokens from /nowhere/a.json: No such file or directory", Error);
}
