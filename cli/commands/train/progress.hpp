// The progress line of a training run.
//
//     step  412/1000  loss 1.9312  2.786 bits/byte  23.4k tokens/s  11 % communication  0:25 left
//
// A terminal shows one line that is rewritten. A file or a pipe gets about ten lines in all, so
// that a log stays short.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/clock.hpp"
#include "training/trainer.hpp"

namespace ringside::cli {

class Progress {
 public:
  // For the steps after `first`, up to and including `last`.
  Progress(std::int64_t first, std::int64_t last, std::FILE* out);
  ~Progress() { end(); }  // after an exception too: its message then gets a line of its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const training::StepReport& report);
  void validation(std::int64_t step, double bits_per_byte);
  void end();  // leaves the cursor on a new line

 private:
  // In at most `columns`: bits/byte, which the loss also tells, and communication are left out
  // first.
  std::string line(const training::StepReport& report, std::size_t columns) const;
  std::size_t columns() const;  // of the terminal, but for the last
  void rewrite_line(std::string text);

  std::int64_t first_, steps_;
  std::FILE* out_;
  bool terminal_;
  bool line_open_ = false;
  Clock::time_point last_written_{};
  // Exponential moving averages, over about the last ten steps.
  double seconds_per_step_ = 0, communication_share_ = 0;
};

}  // namespace ringside::cli
