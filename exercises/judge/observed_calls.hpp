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
  // Keeps every call from the network until release(). A call that stays longer than `patience`
  // goes on, and with it all others: whoever waits for it keeps backward from its end.
  void hold();
  void release();
  // The label of the call that went on without release(); "" stands for a call without a label.
  const std::optional<std::string>& impatient() const { return impatient_; }

  // After release() every call takes this long, so that an answer that does not wait for its calls
  // is seen to.
  void slow_down(std::chrono::milliseconds each) { delay_ = each; }

  // In the order in which they ran, since the last clear(). Barriers are left out.
  std::vector<ObservedCall> calls() const;
  std::size_t ended() const;  // how many of them have ended
  void clear();

 private:
  friend class ObservedBackend;
  void before(const collectives::Call& call, const void* input, const void* output);
  void after(const collectives::Call& call);

  static constexpr std::chrono::seconds patience{3};
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
