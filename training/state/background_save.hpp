// BackgroundSave: writes a checkpoint on a thread of its own, while the next steps are taken.
//
//     trainer   | step 50 | copy | step 51 | step 52 | ...
//     thread                     [ checksums, files, fsync, rename ]
//
// A crash at any moment leaves the previous checkpoint whole, since a checkpoint takes effect by
// one rename (training_state.hpp).
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "base/system/start_thread.hpp"

namespace ringside::training {

// At most one checkpoint is written at a time.
class BackgroundSave {
 public:
  BackgroundSave() = default;
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  ~BackgroundSave() {
    if (thread_.joinable()) thread_.join();
  }

  // Calls `write`, a result of copy_run(), on a thread. Call finish() first: before the copy, so
  // that there is never a second one in memory.
  void start(std::function<void()> write) {
    std::packaged_task<void()> task(std::move(write));
    written_ = task.get_future();
    thread_ = start_thread("saving a checkpoint", std::move(task));
  }

  // After each step: throws the Error of a checkpoint that could not be written. Does not wait.
  void check() {
    if (written_.valid() && written_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
      finish();
  }

  // Waits until the checkpoint that is under way, if any, is written. Throws as check() does.
  void finish() {
    if (thread_.joinable()) thread_.join();
    if (written_.valid()) std::exchange(written_, {}).get();
  }

 private:
  std::thread thread_;
  std::future<void> written_;
};

}  // namespace ringside::training
