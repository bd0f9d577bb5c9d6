// Turns the bytes that a rank writes, in pieces of any size, into whole lines with a prefix.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/clock.hpp"

namespace ringside::cli {

// A progress line rewrites itself: "step 1\rstep 2\rstep 3\n". Forwarded unchanged, it would
// overwrite the lines of other ranks. So a rewritten line becomes lines: one state a second, and
// always the last state.
class LineForwarder {
 public:
  static constexpr std::size_t longest_line = 64 * 1024;  // longer lines are cut: memory is bounded
  static constexpr Seconds between_rewritten_lines{1};

  explicit LineForwarder(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends to `out` the lines that `bytes` completes, each with '\n' at its end. `now` paces
  // rewritten lines.
  void feed(std::string_view bytes, Clock::time_point now, std::string& out);

  // The writer has ended: appends its last line, even if it lacks '\n'.
  void finish(std::string& out);

 private:
  void end_line(std::string& out);
  void rewrite_line(Clock::time_point now, std::string& out);
  void emit(std::string_view line, std::string& out) const;

  std::string prefix_;
  std::string line_;       // since the last '\n' or '\r'
  std::string rewritten_;  // the last state of a rewritten line, if it has not been shown

  // The last byte was '\r'. The next byte tells whether the line is rewritten or ends with "\r\n".
  bool carriage_returned_ = false;
  Clock::time_point next_rewritten_{};
};

}  // namespace ringside::cli
