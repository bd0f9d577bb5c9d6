// The trace of one rank: spans of time in two tracks, the messages of its calls, and samples of the
// memory in use.
//
//     compute        ┌ forward ─────────┐┌ backward ──────────┐┌ finish ─┐┌ optimizer ┐  phases
//                     linear  rms_norm .. linear backward ...   wait                     ops, waits
//     communication                          ┌ all_reduce ┐┌ all_reduce ─┐               calls
//
// In a wait the rank's thread blocks until a call has ended: communication that computation does
// not hide. Code that records asks Trace::here(), which only reads a thread-local pointer:
//
//     Trace trace;
//     {
//       const Trace::On on(trace);
//       ...                           // records this thread's work, and the calls that it starts
//     }
//     for (const auto& span : trace.spans()) ...
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/scoped_value.hpp"
#include "base/trace/profiler_range.hpp"

namespace ringside {

class Trace {
 public:
  enum class Track : std::uint8_t { compute, communication };
  enum class Kind : std::uint8_t { phase, op, wait, call };

  struct Span {
    Track track = Track::compute;
    Kind kind = Kind::op;
    std::string name;  // "forward", "linear", "all_reduce"
    Clock::time_point start, end;
    std::string about = {};         // calls and their waits: the label of the data, "bucket 3"
    std::uint64_t bytes = 0;        // calls: the size of the whole buffer
    Clock::time_point queued = {};  // calls: when it was made; it starts after earlier calls end
  };
  // A message of a call: a slice of what a step of its schedule sends. Two ranks see the messages
  // from the one to the other in the same order.
  struct Message {
    enum Kind : std::uint8_t { sent, received } kind = sent;
    int peer = 0, step = 0;
    std::uint32_t slice = 0;  // sent: its number in the step
    std::uint64_t bytes = 0;  // sent
    Clock::time_point time;   // when it was posted, or had arrived
  };
  // Bytes in use at that time, one number for each of memory_kinds().
  struct Memory {
    Clock::time_point time;
    std::vector<std::int64_t> bytes;
  };

  // Records the calling thread's work until it is destroyed. The trace must outlive the calls that
  // the thread starts.
  class On {
   public:
    explicit On(Trace& trace) : here_(Trace::here_, &trace) {}

   private:
    ScopedValue<Trace*> here_;
  };

  // The trace of the calling thread; nullptr if there is none.
  static Trace* here() { return here_; }

  // Any thread may call these.
  void add(Span span);
  void add(const Message& message);
  void add(Memory memory);

  // In the order in which the spans ended. Call these when no thread adds any more.
  const std::vector<Span>& spans() const { return spans_; }
  const std::vector<Message>& messages() const { return messages_; }
  const std::vector<Memory>& memory() const { return memory_; }

  // The names of the numbers in Memory::bytes. The default is one, "held".
  const std::vector<std::string>& memory_kinds() const { return memory_kinds_; }
  void set_memory_kinds(std::vector<std::string> kinds) { memory_kinds_ = std::move(kinds); }

  // Where the rank is in a mesh: "pp=1,dp=0". The default is empty: all ranks are one group.
  const std::string& coordinates() const { return coordinates_; }
  void set_coordinates(std::string coordinates) { coordinates_ = std::move(coordinates); }

 private:
  static inline constinit thread_local Trace* here_ = nullptr;
  std::mutex mutex_;
  std::vector<Span> spans_;
  std::vector<Message> messages_;
  std::vector<Memory> memory_;
  std::vector<std::string> memory_kinds_{"held"};
  std::string coordinates_;
};

// The names in reports and files.
const char* name_of(Trace::Track track);
const char* name_of(Trace::Kind kind);

// Records a phase of a training step from construction to destruction, on the calling thread.
class TracedPhase {
 public:
  explicit TracedPhase(const char* name)
      : range_(name), name_(name), start_(Trace::here() ? Clock::now() : Clock::time_point{}) {}
  ~TracedPhase() {
    if (Trace* trace = Trace::here())
      trace->add({Trace::Track::compute, Trace::Kind::phase, name_, start_, Clock::now()});
  }
  TracedPhase(const TracedPhase&) = delete;
  TracedPhase& operator=(const TracedPhase&) = delete;

 private:
  ProfilerRange range_;
  const char* name_;
  Clock::time_point start_;
};

}  // namespace ringside
