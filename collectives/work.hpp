// A call that is under way while its caller computes.
//
//     Work work = group.all_reduce_async(std::span(gradients), ReduceOp::avg);
//     ... compute something else; do not touch `gradients` ...
//     work.wait();                                                                   now they are the mean
//
// Calls of one group run in the order in which they were made, one after the other, on a thread of
// the group's own; blocking calls take their place in the same order. The thread exists from the
// first asynchronous call on: a program that never makes one has no threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "collectives/backends/host_and_device.hpp"
#include "collectives/execution/backend.hpp"

namespace ringside::collectives {

// Where the time went, in seconds.
struct CallTimes {
  double blocked = 0;       // callers stood still: in blocking calls, in wait()
  double running = 0;       // calls were being carried out, seen by a caller or not
  std::uint64_t calls = 0;  // that have ended
};

// Where what a call reads is still being computed by a device: called on the caller's thread when
// the call is made, it marks the place up to which the device has been given work; what it returns
// waits, on whatever thread, until all of that is done.
using Fence = std::function<std::function<void()>()>;

// A handle: copies speak of the same call. One that is dropped without wait() leaves the call
// running; if it fails, the group's next call says so.
class Work {
 public:
  // Whether the call has ended, well or not. Does not block.
  bool done() const;

  // Blocks until the call has ended. Throws what the call threw, every time it is asked.
  void wait() const;

 private:
  friend class CallQueue;
  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// The calls of one group, in order.
class CallQueue {
 public:
  explicit CallQueue(std::unique_ptr<Backend> backend);
  ~CallQueue();  // waits for the calls that are under way
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // The buffers must stay where they are, untouched by the caller, until the work is done.
  Work start(const Call& call, const void* input, void* output);

  // Blocks. Runs on the caller's own thread where nothing is under way, so that a debugger sees one
  // thread.
  void run(const Call& call, const void* input, void* output);

  // Ends what is under way and waits until it has ended; every call from here on, and those of the
  // other ranks, fails with `cause`.
  void abort(const std::string& cause) noexcept;

  // From the next call on, each waits behind a fence of its own before the backend runs, so that
  // the device may go on with what comes after.
  void set_fence(Fence fence) { fence_ = std::move(fence); }

  // For questions that do not change anything; with calls under way, its counters are those of some
  // moment.
  const Backend& backend() const { return *backend_; }
  Backend& backend() { return *backend_; }  // while no call is under way
  // While no call is under way: from here on calls on memory of a device go over `device`
  // (two_memories.hpp). If that throws, all stays as it is.
  void add_device(std::unique_ptr<Backend> device, IsDeviceMemory is_device_memory) {
    backend_ = make_two_memory_backend(std::move(backend_), std::move(device),
                                       std::move(is_device_memory));
  }
  CallTimes times() const;

 private:
  friend class Work;
  struct Shared;
  bool idle() const;
  void serve();
  void carry_out(const std::shared_ptr<Work::State>& state);

  std::unique_ptr<Backend> backend_;
  Fence fence_;
  std::shared_ptr<Shared> shared_;  // outlives the queue in the hands of its Works
  std::thread thread_;
};

}  // namespace ringside::collectives
