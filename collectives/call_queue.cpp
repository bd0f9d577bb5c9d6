#include "collectives/call_queue.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>

#include "base/start_thread.hpp"
#include "base/trace/profiler_range.hpp"
#include "base/trace/trace.hpp"
#include "collectives/host_and_device.hpp"

namespace ringside::collectives {

// What callers and the queue's thread share, guarded by `mutex`.
struct CallQueue::Shared {
  std::mutex in_use;  // held by whoever uses the backend: the queue's thread or a caller
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Work::State>> queue;  // the front is under way
  std::atomic<std::size_t> queued = 0;  // its length: a caller reads it without the mutex
  CallTimes times;                      // of asynchronous calls
  bool closing = false;
};

struct Work::State {
  std::shared_ptr<CallQueue::Shared> shared;
  Call call;
  const void* input;
  void* output;
  bool done = false;
  std::exception_ptr error = {};
  Trace* trace = nullptr;  // the trace of the thread that made the call
  std::function<void()> wait_for_input = {};
  Clock::time_point queued = {};
};

// Adds the call, and below the caller's wait for it, to the trace.
static void note_call(Trace* trace, const Call& call, Clock::time_point queued,
                      Clock::time_point start) {
  if (!trace) return;
  trace->add({Trace::Track::communication, Trace::Kind::call, std::string(name_of(call.collective)),
              start, Clock::now(), std::string(call.label.view()), call.count * size_of(call.type),
              queued});
}

static void note_wait(const Call& call, Clock::time_point start) {
  if (Trace* trace = Trace::here())
    trace->add({Trace::Track::compute, Trace::Kind::wait,
                fmt::format("wait for {}", name_of(call.collective)), start, Clock::now(),
                std::string(call.label.view())});
}

bool Work::done() const {
  const std::lock_guard lock(state_->shared->mutex);
  return state_->done;
}

void Work::wait() const {
  const auto start = Clock::now();
  const ProfilerRange range("wait for", name_of(state_->call.collective),
                            state_->call.label.view());
  auto& shared = *state_->shared;
  std::unique_lock lock(shared.mutex);
  shared.changed.wait(lock, [this] { return state_->done; });
  shared.times.blocked += seconds_since(start);
  note_wait(state_->call, start);
  if (state_->error) std::rethrow_exception(state_->error);
}

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

Work CallQueue::start(const Call& call, const void* input, void* output) {
  // First of all: if the thread cannot be started, nothing may be left in the queue.
  if (!thread_.joinable()) thread_ = start_thread("asynchronous calls", [this] { serve(); });
  auto state = std::make_shared<Work::State>(Work::State{shared_, call, input, output});
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

void CallQueue::run(const Call& call, const void* input, void* output) {
  // Only the caller's thread makes the queue longer, so no call can come between this look and
  // this call.
  std::unique_lock in_use(shared_->in_use, std::defer_lock);
  if (shared_->queued.load(std::memory_order_acquire) > 0 || !in_use.try_lock())
    return start(call, input, output).wait();
  const auto start_time = Clock::now();
  {
    const ProfilerRange range(name_of(call.collective), call.label.view());
    if (fence_) fence_()();
    backend_->run(call, input, output);
  }
  in_use.unlock();
  const double seconds = seconds_since(start_time);
  note_call(Trace::here(), call, start_time, start_time);
  note_wait(call, start_time);
  blocking_seconds_ += seconds;
  ++blocking_calls_;
}

void CallQueue::abort(const std::string& cause) noexcept {
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
  const std::lock_guard lock(shared_->mutex);
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
  std::exception_ptr error;
  try {
    const ProfilerRange range(name_of(state->call.collective), state->call.label.view());
    std::optional<Trace::On> on;  // the call's messages belong to the trace of its caller
    if (state->trace) on.emplace(*state->trace);
    if (state->wait_for_input) state->wait_for_input();
    backend_->run(state->call, state->input, state->output);
  } catch (...) {
    error = std::current_exception();
  }
  in_use.unlock();
  note_call(state->trace, state->call, state->queued, start_time);
  const std::lock_guard lock(shared_->mutex);
  state->error = error;
  shared_->times.running += seconds_since(start_time);
  ++shared_->times.calls;
}

}  // namespace ringside::collectives
