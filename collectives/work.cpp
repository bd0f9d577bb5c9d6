#include "collectives/work.hpp"

#include <algorithm>

#include "base/trace/profiler_range.hpp"
#include "collectives/calls/work_state.hpp"

namespace ringside::collectives {

void note_wait(const Call& call, Clock::time_point start) {
  if (Trace* trace = Trace::here())
    trace->add({Trace::Track::compute, Trace::Kind::wait,
                fmt::format("wait for {}", name_of(call.collective)), start, Clock::now(),
                std::string(call.label.view())});
}

void note_call(Trace* trace, const Call& call, Clock::time_point queued, Clock::time_point start) {
  if (!trace) return;
  trace->add({Trace::Track::communication, Trace::Kind::call, std::string(name_of(call.collective)),
              start, Clock::now(), std::string(call.label.view()), call.count * size_of(call.type),
              queued});
}

bool Work::done() const {
  const auto lock = state_->shared->lock_if_shared();
  return state_->done;
}

void Work::wait() const {
  wait_for(Seconds::max());
}

bool Work::wait_for(Seconds timeout, bool in_a_loop) const {
  state_->shared->owner.require_this();
  const auto start = Clock::now();
  const Call& call = state_->what.call;
  const ProfilerRange range("wait for", name_of(call.collective), call.label.view());
  auto& shared = *state_->shared;
  std::unique_lock lock(shared.mutex);
  const auto is_done = [this] { return state_->done; };
  constexpr Seconds three_decades(1e9);  // the clock cannot count much further
  state_->waited_for |= timeout > three_decades || in_a_loop;
  shared.changed.wait_for(lock, std::min(timeout, three_decades), is_done);
  shared.times.blocked += seconds_since(start);
  note_wait(call, start);
  if (state_->error) std::rethrow_exception(state_->error);
  return state_->done;
}

int Work::source() const {
  const auto lock = state_->shared->lock_if_shared();
  return state_->source;
}

}  // namespace ringside::collectives
