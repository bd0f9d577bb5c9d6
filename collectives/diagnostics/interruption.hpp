// How a thread ends a call that another thread is in.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

namespace ringside::collectives {

// `Cause` is an exception. The thread in the call looks often, so that it costs one load.
template <class Cause>
class Interruption {
 public:
  // From any thread. The first cause counts.
  void set(const Cause& cause) noexcept {
    const std::lock_guard lock(mutex_);
    if (!cause_) cause_ = cause;
    is_set_.store(true, std::memory_order_release);
  }

  void throw_if_set() const {
    if (!is_set_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    throw *cause_;
  }

 private:
  std::atomic<bool> is_set_ = false;
  mutable std::mutex mutex_;
  std::optional<Cause> cause_;
};

}  // namespace ringside::collectives
