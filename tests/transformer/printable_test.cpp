#include "transformer/printable.hpp"

#include <string_view>

#include <doctest/doctest.h>

using namespace ringside::transformer;

namespace {

std::string shown(std::string_view bytes) {
  return printable({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

}  // namespace

TEST_CASE("text stays as it is") {
  CHECK(shown("int main() {\n\treturn 0;\n}\n") == "int main() {\n\treturn 0;\n}\n");
  CHECK(shown("caf\xc3\xa9 \xe2\x88\x91 \xf0\x9f\xa5\x8a") ==
        "caf\xc3\xa9 \xe2\x88\x91 \xf0\x9f\xa5\x8a");
  CHECK(shown("").empty());
}

TEST_CASE("what a terminal would obey is escaped") {
  CHECK(shown("\x1b[2J\a\r") == "\\x1b[2J\\x07\\x0d");
  CHECK(shown("\x7f") == "\\x7f");
  CHECK(shown("\xc2\x9b"
              "31m") == "\\xc2\\x9b31m");  // CSI as one C1 control character
  CHECK(shown("\xe2\x80\xae"
              "x") == "\\xe2\\x80\\xaex");  // right-to-left override
  CHECK(shown(std::string_view("\0", 1)) == "\\x00");
}

TEST_CASE("bytes that are no UTF-8 are escaped one by one") {
  CHECK(shown("\xc3") == "\\xc3");
  CHECK(shown("\xc3(") == "\\xc3(");
  CHECK(shown("\xc0\xaf") == "\\xc0\\xaf");                    // overlong
  CHECK(shown("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // surrogate
  CHECK(shown("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
  CHECK(shown("\xff\xfe") == "\\xff\\xfe");
}
