// What a Work shares with whoever carries out its call: the queue of a group's calls, or the
// thread of its messages.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "base/system/fork.hpp"
#include "base/trace/trace.hpp"
#include "collectives/execution/backend.hpp"
#include "collectives/work.hpp"

namespace ringside::collectives {

// What a backend's run() takes. Only a call of unequal blocks has `begins`.
struct CallOnBuffers {
  Call call;
  const void* input = nullptr;
  void* output = nullptr;
  BlockBegins begins = {};
};

// One for all works of a queue.
struct Work::Shared {
  const OwnerProcess owner;
  std::mutex mutex;  // guards the rest, and what changes in a State
  std::condition_variable changed;
  CallTimes times;  // of asynchronous calls

  // In a child nobody else is there, and the mutex may be locked for ever.
  std::unique_lock<std::mutex> lock_if_shared() {
    return owner.is_this() ? std::unique_lock(mutex) : std::unique_lock<std::mutex>();
  }
};

struct Work::State {
  std::shared_ptr<Shared> shared;
  CallOnBuffers what;
  bool done = false;
  bool waited_for = false;  // by a caller in wait(), for as long as it takes
  std::exception_ptr error = {};
  int source = -1;         // the rank that a message came from
  Trace* trace = nullptr;  // the trace of the thread that made the call
  std::function<void()> wait_for_input = {};
  Clock::time_point queued = {};
};

// Adds a caller's wait for the call to the trace.
void note_wait(const Call& call, Clock::time_point start);
// Adds the call to `trace`, unless that is null; below a caller's wait for it.
void note_call(Trace* trace, const Call& call, Clock::time_point queued, Clock::time_point start);

}  // namespace ringside::collectives
