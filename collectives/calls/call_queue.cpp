#include "collectives/calls/call_queue.hpp"

#include <atomic>
#include <deque>
#include <optional>

#include "base/system/start_thread.hpp"
#include "base/trace/profiler_range.hpp"
#include "base/trace/trace.hpp"
#include "collectives/calls/host_and_device.hpp"

namespace ringside::collectives {

// What callers and the queue's thread share, guarded by `mutex`.
struct CallQueue::Shared : Work::Shared {
  std::mutex in_use;  // held by whoever uses the backend: the queue's thread or a caller
  std::deque<std::shared_ptr<Work::State>> queue;  // the front is under way
  std::atomic<std::size_t> queued = 0;  // its length: a caller reads it without the mutex
  bool closing = false;
};

CallQueue::CallQueue(std::unique_ptr<Backend> backend)
    : backend_(std::move(backend)), shared_(std::make_shared<Shared>()) {}

CallQueue::~CallQueue() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->closing = true;
  }
  shared_->changed.notify_all();
  if (thread_.joinable()) thread_.join();
}

Work CallQueue::start(CallOnBuffers what) {
  shared_->owner.require_this();
  // First of all: if the thread cannot be started, nothing may be left in the queue.
  if (!thread_.joinable()) thread_ = start_thread("asynchronous calls", [this] { serve(); });
  auto state = std::make_shared<Work::State>(Work::State{shared_, std::move(what)});
  if ((state->trace = Trace::here())) state->queued = Clock::now();
  if (fence_) state->wait_for_input = fence_();
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->queue.push_back(state);
    ++shared_->queued;
  }
  shared_->changed.notify_all();
  return Work(std::move(state));
}

void CallQueue::run(CallOnBuffers what) {
  shared_->owner.require_this();
  // Only the caller's thread makes the queue longer, so no call can come between this look and
  // this call.
  std::unique_lock in_use(shared_->in_use, std::defer_lock);
  if (shared_->queued.load(std::memory_order_acquire) > 0 || !in_use.try_lock())
    return start(std::move(what)).wait();
  const auto start_time = Clock::now();
  const Call& call = what.call;
  {
    const ProfilerRange range(name_of(call.collective), call.label.view());
    if (fence_) fence_()();
    backend_->run(call, what.input, what.output, what.begins);
  }
  in_use.unlock();
  const double seconds = seconds_since(start_time);
  note_call(Trace::here(), call, start_time, start_time);
  note_wait(call, start_time);
  blocking_seconds_ += seconds;
  ++blocking_calls_;
}

void CallQueue::abort(const std::string& cause) noexcept {
  if (!shared_->owner.is_this()) return;
  backend_->interrupt(cause);
  {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait(lock, [this] { return shared_->queue.empty(); });
  }
  const std::lock_guard in_use(shared_->in_use);
  backend_->abort(cause);
}

void CallQueue::add_device(std::unique_ptr<Backend> device, IsDeviceMemory is_device_memory) {
  backend_ = make_host_and_device_backend(std::move(backend_), std::move(device),
                                          std::move(is_device_memory));
}

CallTimes CallQueue::times() const {
  const auto lock = shared_->lock_if_shared();
  CallTimes times = shared_->times;
  times.blocked += blocking_seconds_;
  times.running += blocking_seconds_;
  times.calls += blocking_calls_;
  return times;
}

void CallQueue::serve() {
  std::unique_lock lock(shared_->mutex);
  for (;;) {
    shared_->changed.wait(lock, [this] { return shared_->closing || !shared_->queue.empty(); });
    if (shared_->queue.empty()) return;
    const auto state = shared_->queue.front();
    lock.unlock();
    carry_out(state);
    lock.lock();
    state->done = true;
    shared_->queue.pop_front();
    --shared_->queued;
    shared_->changed.notify_all();
  }
}

void CallQueue::carry_out(const std::shared_ptr<Work::State>& state) {
  std::unique_lock in_use(shared_->in_use);
  const auto start_time = Clock::now();
  const Call& call = state->what.call;
  std::exception_ptr error;
  try {
    const ProfilerRange range(name_of(call.collective), call.label.view());
    std::optional<Trace::On> on;  // the call's messages belong to the trace of its caller
    if (state->trace) on.emplace(*state->trace);
    if (state->wait_for_input) state->wait_for_input();
    backend_->run(call, state->what.input, state->what.output, state->what.begins);
  } catch (...) {
    error = std::current_exception();
  }
  in_use.unlock();
  note_call(state->trace, call, state->queued, start_time);
  const std::lock_guard lock(shared_->mutex);
  state->error = error;
  shared_->times.running += seconds_since(start_time);
  ++shared_->times.calls;
}

}  // namespace ringside::collectives
