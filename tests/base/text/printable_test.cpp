#include "base/text/printable.hpp"

#include <string_view>

#include <doctest/doctest.h>

using namespace ringside;

TEST_CASE("text stays as it is") {
  CHECK(printable("int main() {\n\treturn 0;\n}\n") == "int main() {\n\treturn 0;\n}\n");
  CHECK(printable("caf\xc3\xa9 \xe2\x88\x91 \xf0\x9f\xa5\x8a") ==
        "caf\xc3\xa9 \xe2\x88\x91 \xf0\x9f\xa5\x8a");
  CHECK(printable("") == "");
}

TEST_CASE("control characters are escaped") {
  CHECK(printable("\x1b[2J\a\r") == "\\x1b[2J\\x07\\x0d");
  CHECK(printable("\x7f") == "\\x7f");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\xc2\\x9b31m");  // CSI as one C1 control character
  CHECK(printable("\xe2\x80\xae"
                  "x") == "\\xe2\\x80\\xaex");  // right-to-left override
  CHECK(printable(std::string_view("\0", 1)) == "\\x00");
}

TEST_CASE("bytes that are not UTF-8 are escaped one by one") {
  CHECK(printable("\xc3") == "\\xc3");
  CHECK(printable("\xc3(") == "\\xc3(");
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");                    // overlong
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
  CHECK(printable("\xff\xfe") == "\\xff\\xfe");
}

TEST_CASE("a printable line has no line breaks and no tabs") {
  CHECK(printable_line("a\n\tb\x1b") == "a\\n\\tb\\x1b");
}
