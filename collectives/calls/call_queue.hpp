// The calls of one group, carried out in the order in which they were made.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "collectives/calls/work_state.hpp"
#include "collectives/device_calls.hpp"

namespace ringside::collectives {

// The thread exists from the first asynchronous call on. A program that makes none has no threads.
class CallQueue {
 public:
  explicit CallQueue(std::unique_ptr<Backend> backend);
  ~CallQueue();  // waits for the calls that are under way

  // Returns at once. The caller must not touch the buffers until the work is done. Throws Error if
  // the thread cannot be started.
  Work start(CallOnBuffers call);

  // Blocks. If no call is under way, it runs on the caller's thread, so that a debugger shows one
  // thread.
  void run(CallOnBuffers call);

  // Ends the calls that are under way and waits for their end. All later calls fail with `cause`,
  // and so do the calls of other ranks.
  void abort(const std::string& cause) noexcept;

  // From the next call on, each call waits for a fence of its own before the backend runs. The
  // device may meanwhile go on with later work.
  void set_fence(Fence fence) { fence_ = std::move(fence); }

  // To be used while no call is under way; counters of the backend may be read at any time.
  const Backend& backend() const { return *backend_; }
  Backend& backend() { return *backend_; }

  // Only while no call is under way: makes calls on memory of a device go over `device`
  // (host_and_device.hpp). If it throws, nothing has changed.
  void add_device(std::unique_ptr<Backend> device, IsDeviceMemory is_device_memory);

  CallTimes times() const;

 private:
  struct Shared;
  void serve();
  void carry_out(const std::shared_ptr<Work::State>& state);

  std::unique_ptr<Backend> backend_;
  Fence fence_;
  std::shared_ptr<Shared> shared_;  // each Work holds it too, and may outlive the queue
  double blocking_seconds_ = 0;     // of blocking calls; only the caller's thread uses these two
  std::uint64_t blocking_calls_ = 0;
  std::thread thread_;
};

}  // namespace ringside::collectives
