#include "cli/launcher/processes/line_forwarder.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

using ringside::Clock;
using ringside::cli::LineForwarder;

namespace {

// Feeds `pieces` at intervals of `step` and returns the whole output.
std::string forwarded(const std::vector<std::string>& pieces,
                      std::chrono::milliseconds step = std::chrono::milliseconds(1)) {
  LineForwarder lines("[2] ");
  std::string out;
  auto now = Clock::now();
  for (const auto& piece : pieces) {
    lines.feed(piece, now, out);
    now += step;
  }
  lines.finish(out);
  return out;
}

}  // namespace

TEST_CASE("lines get the prefix however the bytes are cut into pieces") {
  CHECK(forwarded({"one\ntwo\n"}) == "[2] one\n[2] two\n");
  CHECK(forwarded({"o", "ne\nt", "wo", "\n"}) == "[2] one\n[2] two\n");
  CHECK(forwarded({"\n\n"}) == "[2] \n[2] \n");
  CHECK(forwarded({}) == "");
}

TEST_CASE("a last line without a newline is forwarded when the writer ends") {
  CHECK(forwarded({"one\ntwo"}) == "[2] one\n[2] two\n");
}

TEST_CASE("CR LF ends a line as LF does") {
  CHECK(forwarded({"one\r\ntwo\r\n"}) == "[2] one\n[2] two\n");
  CHECK(forwarded({"one\r", "\ntwo\r", "\n"}) == "[2] one\n[2] two\n");
}

TEST_CASE("a progress line is shown once a second and in its last state") {
  using std::chrono::milliseconds;
  CHECK(forwarded({"step 1\r", "step 2\r", "step 3\r", "step 4\n"}) == "[2] step 1\n[2] step 4\n");
  CHECK(forwarded({"\rstep 1", "\rstep 2", "\rstep 3", "\n"}) == "[2] step 1\n[2] step 3\n");
  CHECK(forwarded({"\rstep 1", "\rstep 2", "\rstep 3"}) == "[2] step 1\n[2] step 3\n");
  CHECK(forwarded({"step 1\r", "step 2\r", "step 3\r"}) == "[2] step 1\n[2] step 3\n");
  CHECK(forwarded({"step 1\r", "step 2\r", "step 3\r"}, milliseconds(1001)) ==
        "[2] step 1\n[2] step 2\n[2] step 3\n");
  CHECK(forwarded({"step 1\r", "step 2\r", "done\nnext\n"}) == "[2] step 1\n[2] done\n[2] next\n");
}

TEST_CASE("a very long line is cut so that memory stays bounded") {
  const std::string out = forwarded({std::string(LineForwarder::longest_line + 5, 'x') + "\n"});
  CHECK(out == "[2] " + std::string(LineForwarder::longest_line, 'x') + "\n[2] xxxxx\n");
}
