#include "collectives/execution/watchdog.hpp"

#include <algorithm>
#include <new>

#include <fmt/format.h>

#include "collectives/call_mismatch.hpp"
#include "collectives/diagnostics/control_channel.hpp"

namespace ringside::collectives {

Watchdog::Watchdog(Transport& transport, ControlChannel& control, const ExecutorOptions& options)
    : transport_(transport),
      control_(control),
      options_(options),
      recorder_(transport.rank(), transport.size(), flight_folder_from_environment(),
                options.group) {}

void Watchdog::begin(const Task& task) {
  task_ = &task;
  progress_ = {};
  bytes_received_ = 0;
  recorder_.begin(task.sequence, task.call, static_cast<std::uint32_t>(task.schedule.steps.size()));
  if (task.call.collective != Collective::point_to_point)
    control_.history().add(task.sequence, task.call);
}

void Watchdog::end() {
  recorder_.end(FlightEntry::done);
}

Completion Watchdog::wait(const Progress& progress) {
  progress_ = progress;
  recorder_.progress(static_cast<std::uint32_t>(progress.step),
                     progress.receiving ? progress.peer : -1, bytes_received_);
  const auto start = Clock::now();
  const Seconds interval = std::min(options_.timeout, Position::every);
  auto told = start;  // when this rank last told its position
  bool warned = false;
  for (;;) {
    control_.throw_if_interrupted();
    const auto patience = std::min(options_.timeout, ControlChannel::poll_interval);
    if (const auto completion = wait_for_transport(Deadline::after(patience))) {
      bytes_received_ += completion->payload.size();
      if (warned)
        options_.warn(fmt::format("rank {} went on after {:.0f} s, in call #{}", transport_.rank(),
                                  seconds_since(start), task_->sequence));
      return *completion;
    }
    control_.listen();
    if (seconds_since(told) >= interval.count()) {
      exchange_positions();
      told = Clock::now();
    }
    const double waited = seconds_since(start);
    if (waited >= options_.timeout.count()) time_out();
    if (!warned && options_.warn_after.count() > 0 && waited >= options_.warn_after.count()) {
      warn_of_wait(waited);
      warned = true;
    }
  }
}

std::optional<Completion> Watchdog::wait_for_transport(const Deadline& deadline) {
  try {
    return transport_.wait(deadline);
  } catch (const ConnectionBroken& broken) {
    control_.explain(broken.peer, broken.what());
  }
}

// Nothing has arrived for a while, which may be in order. But ranks that wait for each other in
// different calls would wait for ever.
void Watchdog::exchange_positions() {
  control_.tell_position(position());
  const auto positions = control_.positions(Seconds(0));
  for (int r = 0; r < transport_.size(); ++r)
    if (positions[r].recent() && positions[r].sequence == task_->sequence &&
        numbered_alike(task_->call, positions[r].call))
      check_call(task_->sequence, task_->call, positions[r].call, transport_.rank(), r);
  compare_histories(positions);
}

// Throws Error, with both calls in its text, where another rank has made a different call than this
// rank under the same number, however long ago.
void Watchdog::compare_histories(const std::vector<Position>& positions) const {
  const CallHistory& ours = control_.history();
  for (int r = 0; r < transport_.size(); ++r) {
    const CallHistory& theirs = positions[r].made;
    if (const auto number = ours.parted_from(theirs))
      check_call(*number, ours.at(*number), theirs.at(*number), transport_.rank(), r);
  }
}

Position Watchdog::position() const {
  Position mine;
  mine.sequence = task_->sequence;
  mine.call = task_->call;
  mine.step = static_cast<std::uint32_t>(progress_.step);
  mine.waiting_for = progress_.peer;
  return mine;
}

Watchdog::Others Watchdog::others(const std::vector<Position>& positions) const {
  Others known;
  std::vector<std::string> waiting;
  for (int r = 0; r < transport_.size(); ++r) {
    if (r == transport_.rank()) continue;
    if (!positions[r].recent())
      known.silent.push_back(r);
    else if (r < 16)
      waiting.push_back(fmt::format("rank {} waits for rank {} in step {} of call #{}", r,
                                    positions[r].waiting_for, positions[r].step + 1,
                                    positions[r].sequence));
  }
  if (!known.silent.empty())
    known.silence =
        fmt::format("rank {} {} not answer: stopped, stuck, or busy outside of the collectives",
                    fmt::join(known.silent, ", "), known.silent.size() == 1 ? "does" : "do");
  known.waiting = fmt::format("{}", fmt::join(waiting, "; "));
  return known;
}

// "call #7 of sub-group split1.color0 (ranks 2,3 of the job), all_reduce of 1000 fp32 (sum, ring),
// step 2 of 6"
std::string Watchdog::where() const {
  const int steps = static_cast<int>(task_->schedule.steps.size());
  return fmt::format(
      "call #{}{}, {}, step {} of {}", task_->sequence,
      options_.group.empty() ? "" : " of sub-group " + sub_group_in_words(options_.group),
      describe(task_->call), std::min(progress_.step + 1, steps), steps);
}

void Watchdog::warn_of_wait(double seconds) {
  const Others known = others(control_.positions(Seconds(0)));
  const char* between = known.silence.empty() || known.waiting.empty() ? "" : "; ";
  options_.warn(fmt::format(
      "rank {} has waited for rank {} for {:.0f} s in {}, and will up to {:.0f} s. {}{}{}",
      transport_.rank(), progress_.peer, seconds, where(), options_.timeout.count(), known.silence,
      between, known.waiting));
}

void Watchdog::time_out() {
  const Others known = others(control_.positions(1.2 * Position::every));
  const int blamed = known.silent.empty() ? progress_.peer : known.silent.front();
  throw RankFailure(blamed, fmt::format("{}{}nothing came to rank {} from rank {} for {:.1f} s{}{}",
                                        known.silence, known.silence.empty() ? "" : "; ",
                                        transport_.rank(), progress_.peer, options_.timeout.count(),
                                        known.waiting.empty() ? "" : "; ", known.waiting));
}

// Throws what ended the call: where the histories tell that the ranks made different calls before,
// that is the cause.
void Watchdog::rethrow_first_cause() {
  try {
    throw;
  } catch (const OutOfStep&) {
    // The first mismatch may be in an earlier call. The other ranks tell their histories soon, if
    // they wait as well.
    control_.tell_position(position());
    compare_histories(control_.positions(1.2 * Position::every));
    throw;
  } catch (const RankFailure& failure) {
    if (!failure.heard_from_another()) compare_histories(control_.positions(Seconds(0)));
    throw;
  }
}

void Watchdog::give_up() {
  recorder_.end(FlightEntry::failed);
  try {
    rethrow_first_cause();
  } catch (const RankFailure& failure) {
    const auto text =
        fmt::format("{} [rank {} was in {}]", failure.what(), transport_.rank(), where());
    const RankFailure told(failure.rank, text, failure.heard_from_another() ? failure.cause : text);
    abort(told);
    throw told;
  } catch (const Error& error) {
    abort(RankFailure(transport_.rank(), error.what()));
    throw;
  } catch (const std::bad_alloc&) {
    fail_here("out of memory");
  } catch (const std::exception& error) {
    fail_here(error.what());
  } catch (...) {
    fail_here("unknown exception");
  }
}

void Watchdog::fail_here(const char* reason) {
  const RankFailure failure(transport_.rank(), fmt::format("rank {} failed in {}: {}",
                                                           transport_.rank(), where(), reason));
  abort(failure);
  throw failure;
}

void Watchdog::abort(const RankFailure& cause) noexcept {
  recorder_.write(cause.what());
  control_.abort(cause);
  transport_.cancel();
}

}  // namespace ringside::collectives
