// A call that runs while its caller computes.
//
//     Work work = group.all_reduce_async(std::span(gradients), ReduceOp::avg);
//     ... compute something else, without touching `gradients` ...
//     work.wait();                                              // now they are the mean
//
// The calls of a group run one after the other, in the order in which they were made, on a thread
// of the group (call_queue.hpp). Blocking calls keep the same order.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.hpp"

namespace ringside::collectives {

// A handle: copies refer to the same call. If the last handle is dropped without wait(), the call
// runs on; if it fails, the group's next call throws its error.
class Work {
 public:
  // Whether the call has ended, successfully or not. Does not block.
  bool done() const;

  // Blocks until the call has ended. Throws what the call threw, each time it is called.
  void wait() const;

  // The same, but returns false if the call has not ended after `timeout`. The call then runs on.
  // With `in_a_loop` the caller waits again, and a message's timeout counts as in wait().
  bool wait_for(Seconds timeout, bool in_a_loop = false) const;

  // Of a message that was received (messages.hpp): the rank that sent it. Otherwise -1.
  int source() const;

 private:
  friend class CallQueue;
  friend class Messages;
  struct Shared;
  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// Where the time of a group's calls went, in seconds.
struct CallTimes {
  double blocked = 0;       // callers waited: in blocking calls and in wait()
  double running = 0;       // calls ran, whether a caller waited or not
  std::uint64_t calls = 0;  // how many have ended
};

}  // namespace ringside::collectives
