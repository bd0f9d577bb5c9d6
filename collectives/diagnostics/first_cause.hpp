// The first of what ends a call or a backend: a failure, or the wish of another thread.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

namespace ringside::collectives {

// `Cause` is an exception. A thread in a call looks often, so that it costs one load.
template <class Cause>
class FirstCause {
 public:
  // From any thread. Keeps `cause` unless there is one, and returns the one that is kept.
  const Cause& keep(const Cause& cause) {
    const std::lock_guard lock(mutex_);
    if (!cause_) cause_ = cause;
    is_set_.store(true, std::memory_order_release);
    return *cause_;
  }

  explicit operator bool() const { return is_set_.load(std::memory_order_acquire); }
  void throw_if_any() const {
    if (*this) throw *cause_;  // it does not change any more
  }

 private:
  std::atomic<bool> is_set_ = false;
  std::mutex mutex_;
  std::optional<Cause> cause_;
};

}  // namespace ringside::collectives
