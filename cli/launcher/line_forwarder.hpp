// Turns the bytes that one rank writes, in whatever pieces they arrive, into whole lines with the
// rank's name in front.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/clock.hpp"

namespace ringside::cli {

// A progress line rewrites itself: "step 1\rstep 2\rstep 3\n". Forwarded as it is, it would wipe
// out the lines of other ranks; so of what is rewritten one state a second is shown, each as a line
// of its own, and the last state always.
class LineForwarder {
 public:
  static constexpr std::size_t longest_line =
      64 * 1024;  // what is longer is cut here, so that memory stays bounded
  static constexpr Seconds between_rewritten_lines{1};

  explicit LineForwarder(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends to `out` the lines that `bytes` completes, each ending in '\n'. `now` paces rewritten
  // lines.
  void feed(std::string_view bytes, Clock::time_point now, std::string& out);

  // The writer is gone: appends what it left without an end of line.
  void finish(std::string& out);

 private:
  void end_line(std::string& out);
  void rewrite_line(Clock::time_point now, std::string& out);
  void emit(std::string_view line, std::string& out) const;

  std::string prefix_;
  std::string line_;                // since the last '\n' or '\r'
  std::string rewritten_;           // the last state of a rewritten line that has not been shown
  bool carriage_returned_ = false;  // the last byte was '\r': whether it rewrites the line or is
                                    // half of "\r\n", the next one tells
  Clock::time_point next_rewritten_{};
};

}  // namespace ringside::cli
