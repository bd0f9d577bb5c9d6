// One table for a terminal, a page and other programs.
#include "cli/pictures/table.hpp"

#include <doctest/doctest.h>

#include "base/json.hpp"

using namespace ringside::cli;

namespace {

Table sent_bytes() {
  Table table{{words("strategy", "strategy"), number("step\n(ms)", "step_ms", fixed(1)),
               number("sent\n(MB)", "bytes_sent", fixed(2, 1e-6)),
               in_brackets("formula_bytes_sent", fixed(2, 1e-6)), only_in_json("calls")}};
  table.rows.push_back({"overlap", 12.34, 3428864, 3428000, 39});
  table.rows.push_back({"<none>", 9.5, nullptr, Cell(), 0});
  return table;
}

}  // namespace

TEST_CASE("a table for a terminal: columns as wide as their cells, formulas in brackets") {
  CHECK(sent_bytes().text() ==
        "  strategy  step         sent\n"
        "            (ms)         (MB)\n"
        "  overlap   12.3  3.43 (3.43)\n"
        "  <none>     9.5\n");
}

TEST_CASE("a table line by line has the widths of its columns") {
  Table table{{number("size", "", {}, 6), words("backend", "", 8), "wrong"}};
  table.indent = 0, table.gap = 1;
  CHECK(table.head_line() == "  size backend  wrong\n");
  CHECK(table.line_of({40000, "tcp", 0}) == " 40000 tcp      0\n");
}

TEST_CASE("a table for other programs: keys with units, no key for what is absent") {
  const auto rows = sent_bytes().json({{"model", "tiny"}, {"tied", false}});
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].dump() ==
        R"({"model":"tiny","tied":false,"strategy":"overlap","step_ms":12.34,"bytes_sent":3428864,)"
        R"("formula_bytes_sent":3428000,"calls":39})");
  CHECK(rows[1].at("bytes_sent").is_null());
  CHECK(!rows[1].contains("formula_bytes_sent"));
}

TEST_CASE("a table of a page: titles in one line, nothing that is only in JSON") {
  const ringside::Json page = sent_bytes().shown();
  CHECK(page.at("columns")[0].dump() == R"({"title":"strategy","words":true})");
  CHECK(page.at("columns")[2].at("title") == "sent (MB)");
  CHECK(page.at("columns").size() == 3);
  CHECK(page.at("rows")[1].dump() == R"(["<none>","9.5",""])");
}
