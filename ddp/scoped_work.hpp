// A call on memory that its owner may free: the destructor waits until the call has ended.
//
// An exception may end a parallel method in the middle of backward, while the group's thread still
// reads and writes gradients.
#pragma once

#include <exception>
#include <optional>
#include <utility>

#include "collectives/work.hpp"

namespace ringside::ddp {

// Declare it after the memory that the call uses: members are destroyed in reverse order.
class ScopedWork {
 public:
  ScopedWork(collectives::Work work) : work_(std::move(work)) {}
  ScopedWork(ScopedWork&& other) noexcept : work_(std::exchange(other.work_, std::nullopt)) {}
  ScopedWork& operator=(ScopedWork&&) = delete;
  ~ScopedWork() {
    if (!work_ || work_->done()) return;
    try {
      work_->wait();
    } catch (const std::exception&) {
      // The group has failed: its next call throws the cause.
    }
  }

  bool done() const { return work_->done(); }
  void wait() const { work_->wait(); }

 private:
  std::optional<collectives::Work> work_;  // empty after a move
};

}  // namespace ringside::ddp
