// What one rank did when: spans of time, in two lanes, and how much memory was held in between.
//
//     compute         ┌ forward ──────────┐┌ backward ────────────────┐┌ finish ──┐┌ optimizer ┐       phases
//                      linear  rms_norm ...  linear backward ...        wait                            ops and waits, within them
//     communication                             ┌ all_reduce ┐┌ all_reduce ────────┐                    calls
//
// A wait is time in which the rank's own thread stood still until a call had ended: communication
// that computation does not hide. Whoever has something to tell asks Trace::here(), which costs
// next to nothing where nobody records:
//
//     Trace trace;
//     { const Trace::On on(trace);  ... this thread's work, and the calls that it starts, are recorded ... }
//     for (const auto& span : trace.spans()) ...
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/profiler_range.hpp"

namespace ringside {

class Trace {
 public:
  enum class Lane : std::uint8_t { compute, communication };
  enum class Kind : std::uint8_t { phase, op, wait, call };

  struct Span {
    Lane lane = Lane::compute;
    Kind kind = Kind::op;
    std::string name;  // "forward", "linear", "all_reduce"
    Clock::time_point start, end;
    std::string about = {};  // of a call and of a wait for one: what the data is called, "bucket 3"
    std::uint64_t bytes = 0;  // of a call's whole buffer
    Clock::time_point queued =
        {};  // of a call: when it was made; it starts when those before it have ended
  };
  // Bytes that were held at that time, by kind: memory_kinds() names them.
  struct Memory {
    Clock::time_point time;
    std::vector<std::int64_t> bytes;
  };

  // Records what the calling thread does while it lives. The trace must outlive the calls that are
  // started meanwhile.
  class On {
   public:
    explicit On(Trace& trace) : before_(std::exchange(here_, &trace)) {}
    ~On() { here_ = before_; }
    On(const On&) = delete;
    On& operator=(const On&) = delete;

   private:
    Trace* before_;
  };

  // The trace of the calling thread; nullptr where nobody records.
  static Trace* here() { return here_; }

  // Any thread may add.
  void add(Span span);
  void add(Memory memory);

  // Once nothing is added any more: in the order in which they ended.
  const std::vector<Span>& spans() const { return spans_; }
  const std::vector<Memory>& memory() const { return memory_; }

  // What the columns of Memory::bytes are; "held" where nobody has told.
  const std::vector<std::string>& memory_kinds() const { return memory_kinds_; }
  void set_memory_kinds(std::vector<std::string> kinds) { memory_kinds_ = std::move(kinds); }

 private:
  static inline constinit thread_local Trace* here_ = nullptr;
  std::mutex mutex_;
  std::vector<Span> spans_;
  std::vector<Memory> memory_;
  std::vector<std::string> memory_kinds_{"held"};
};

// The name as it stands in figures and files.
const char* name_of(Trace::Lane lane);
const char* name_of(Trace::Kind kind);

// A phase of a step, from its making to its end, on the calling thread.
class TracedPhase {
 public:
  explicit TracedPhase(const char* name)
      : range_(name), name_(name), start_(Trace::here() ? Clock::now() : Clock::time_point{}) {}
  ~TracedPhase() {
    if (Trace* trace = Trace::here())
      trace->add({Trace::Lane::compute, Trace::Kind::phase, name_, start_, Clock::now()});
  }
  TracedPhase(const TracedPhase&) = delete;
  TracedPhase& operator=(const TracedPhase&) = delete;

 private:
  ProfilerRange range_;
  const char* name_;
  Clock::time_point start_;
};

}  // namespace ringside
