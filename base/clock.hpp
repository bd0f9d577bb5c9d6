// The seam to the system's clock: monotonic time, and the deadline that every wait in Ringside has.
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
  static Deadline after(Seconds seconds) { return {seconds, Clock::now()}; }

  // The time begins when somebody first asks: a wait that need not wait reads no clock.
  static Deadline from_first_look(Seconds seconds) { return {seconds, {}}; }
  static Deadline never() { return from_first_look(Seconds(1e9)); }

  bool expired() const { return remaining() <= Seconds(0); }
  Seconds remaining() const {
    return std::max(Seconds(0), total_ - Seconds(Clock::now() - start()));
  }
  Seconds total() const { return total_; }  // that it was created with, for messages
  Clock::time_point start() const {
    if (start_ == Clock::time_point{}) start_ = Clock::now();
    return start_;
  }

 private:
  Deadline(Seconds total, Clock::time_point start) : total_(total), start_(start) {}
  Seconds total_;
  mutable Clock::time_point start_;
};

}  // namespace ringside
