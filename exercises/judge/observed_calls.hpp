// The calls of a group, seen below the student's code: at the Backend, whatever thread made them,
// whatever their labels say, and whoever waits for them how. World::group() has such a Backend.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>
#include <time.h>

#include "collectives/execution/backend.hpp"

namespace ringside::exercises {

struct ObservedCall {
  collectives::Call call;
  const void* input = nullptr;
  const void* output = nullptr;
  std::vector<double> begins = {};  // the first numbers of the input, if they are fp64
  bool traced = false;              // made on a thread that records: that of the judge
  std::uint64_t bytes() const { return call.count * collectives::size_of(call.type); }
};

class CallObserver {
 public:
  // Keeps every call from the network until release(). If the thread that called hold() waits for
  // one meanwhile, all calls go on: whoever waits for a call keeps backward from its end. A thread
  // waits if it sleeps for `patience`, or asks for so long; not if other programs have the
  // processor, however long that takes.
  void hold(std::chrono::milliseconds patience = std::chrono::seconds(2));
  void release();
  // The label of the call that went on without release(); "" stands for a call without a label.
  const std::optional<std::string>& impatient() const { return impatient_; }

  // After release() every call takes at least this long, and stays until the thread of hold()
  // waits, or sets the delay back to 0: so an answer that does not wait for its calls is seen to.
  void slow_down(std::chrono::milliseconds each);

  // In the order in which they ran, since the last clear(). Barriers are left out.
  std::vector<ObservedCall> calls() const;
  std::size_t ended() const;  // how many of them have ended
  void clear();

 private:
  friend class ObservedBackend;
  void before(const collectives::Call& call, const void* input, const void* output);
  void after(const collectives::Call& call);

  struct Caller {
    static Caller here();
    bool sleeps() const;
    std::chrono::nanoseconds cpu_time() const;
    pid_t id = 0;
    clockid_t clock = 0;
  };

  static constexpr std::chrono::milliseconds look{50};
  void delay();

  std::chrono::milliseconds patience_{0};
  Caller caller_;                             // of hold()
  std::chrono::nanoseconds caller_spent_{0};  // of its processor time, at hold() or slow_down()
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  std::optional<std::string> impatient_;
  std::chrono::milliseconds delay_{0};
  std::vector<ObservedCall> calls_;
  std::size_t ended_ = 0;
};

// `backend`, whose calls `observer` sees.
std::unique_ptr<collectives::Backend> observed(std::unique_ptr<collectives::Backend> backend,
                                               std::shared_ptr<CallObserver> observer);

}  // namespace ringside::exercises
