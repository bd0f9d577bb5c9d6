// A monotonic clock, and the deadline that every wait in Ringside has.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

namespace ringside {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

inline double seconds_since(Clock::time_point start) {
  return Seconds(Clock::now() - start).count();
}

// For ppoll(2) and futex(2). Durations above 10^6 s count as 10^6 s.
inline timespec to_timespec(Seconds duration) {
  const double seconds = std::min(duration.count(), 1e6);
  const auto whole = static_cast<std::time_t>(seconds);
  return {whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
}

class Deadline {
 public:
  static Deadline after(Seconds seconds) { return Deadline(seconds); }

  bool expired() const { return Clock::now() >= end_; }
  Seconds remaining() const { return std::max(Seconds(0), Seconds(end_ - Clock::now())); }
  Seconds total() const { return total_; }  // that it was created with, for messages

 private:
  explicit Deadline(Seconds seconds)
      : total_(seconds),
        end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds)) {}
  Seconds total_;
  Clock::time_point end_;
};

}  // namespace ringside
