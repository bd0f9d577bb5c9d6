// How training goes on, for the person in front of the terminal.
//
//     step  412/1000  loss 1.9312  2.786 bits/byte  23.4k tokens/s  11 % communication  0:25 left
//
// On a terminal it is one line that is written over; anywhere else ten lines or so in all, so that
// a log stays a log.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/clock.hpp"
#include "transformer/trainer.hpp"

namespace ringside::cli {

// "0:07", "12:34", "3:02:01".
std::string in_hours(double seconds);
// "857", "23.4k", "1.2M": three figures or so.
std::string with_unit(double number);

class Progress {
 public:
  // Of the steps after `first` up to `last`.
  Progress(std::int64_t first, std::int64_t last, std::FILE* out);
  ~Progress() {
    end();
  }  // also where training ends with an error: its sentence gets a line of its own
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const transformer::StepReport& report);
  void validation(std::int64_t step, double bits_per_byte);
  void end();  // leaves the cursor on a new line

 private:
  std::string line(const transformer::StepReport& report) const;
  void write_over(std::string text);

  std::int64_t first_, steps_;
  std::FILE* out_;
  bool terminal_;
  bool line_open_ = false;
  Clock::time_point last_written_{};
  double seconds_per_step_ = 0,
         communication_share_ = 0;  // means that fade: what the last ten steps or so were like
};

}  // namespace ringside::cli
