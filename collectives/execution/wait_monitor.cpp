#include "collectives/execution/wait_monitor.hpp"

#include <algorithm>
#include <new>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/environment.hpp"
#include "collectives/call_mismatch.hpp"
#include "collectives/transport/unexpected_message.hpp"

namespace ringside::collectives {

WaitMonitor::WaitMonitor(ControlChannel& control, const ExecutorOptions& options, Numbers numbers)
    : control_(control),
      options_(options),
      numbers_(numbers),
      recorder_(rank(), size(), environment("RINGSIDE_FLIGHT_DIR").value_or(""), options.group) {}

void WaitMonitor::begin(std::uint64_t sequence, const Call& call, std::uint32_t steps) {
  failure_.throw_if_any();
  record_ = &recorder_.begin(sequence, call, steps);
  if (call.collective != Collective::point_to_point) control_.history().add(sequence, call);
}

// While messages arrive in time, nobody asks the control channel.
void WaitMonitor::listen_sometimes() {
  if (seconds_since(listened_) < Position::every.count()) return;
  listened_ = Clock::now();
  control_.listen();
}

void WaitMonitor::end_wait() {
  if (told_position_) control_.end_wait();
  told_position_ = false;
  if (warned_)
    options_.warn(fmt::format("rank {} went on after {:.0f} s, in call #{}", name_of_rank(rank()),
                              seconds_since(wait_start_), record_->sequence));
}

void WaitMonitor::look() {
  // This rank itself stood still, at a breakpoint for example: it has not waited all that time.
  const double since_last = seconds_since(looked_);
  looked_ = Clock::now();
  if (since_last >= std::max(options_.timeout, 10 * ControlChannel::poll_interval).count())
    wait_start_ = looked_;
  control_.listen();
  if (seconds_since(told_) >= std::min(options_.timeout, Position::every).count()) {
    exchange_positions();
    told_ = Clock::now();
  }
  const double waited = seconds_since(wait_start_);
  if (waited >= options_.timeout.count()) time_out();
  if (!warned_ && options_.warn_after.count() > 0 && waited >= options_.warn_after.count()) {
    warn_of_wait(waited);
    warned_ = true;
  }
  interruption_.throw_if_any();
  if (options_.check) options_.check();
}

void WaitMonitor::look_while_connecting() {
  control_.listen();
  if (seconds_since(told_) < Position::every.count()) return;
  told_ = Clock::now();
  Position mine = position();
  mine.waiting_for = Position::connecting;
  control_.tell_position(mine);
}

// Nothing has arrived for a while, which may be in order. But ranks that wait for each other in
// different calls would wait for ever.
void WaitMonitor::exchange_positions() {
  control_.tell_position(position());
  told_position_ = true;
  if (numbers_ == Numbers::of_this_rank) return;
  const auto positions = control_.positions(Seconds(0));
  for (int r = 0; r < size(); ++r)
    if (positions[r].recent() && positions[r].sequence == record_->sequence &&
        numbered_alike(record_->call, positions[r].call))
      check_call(record_->sequence, record_->call, positions[r].call, rank(), r, control_.names());
  compare_histories(positions);
}

// Throws Error, with both calls in its text, where another rank has made a different call than this
// rank under the same number, however long ago.
void WaitMonitor::compare_histories(const std::vector<Position>& positions) const {
  const CallHistory& ours = control_.history();
  for (int r = 0; r < size(); ++r) {
    const CallHistory& theirs = positions[r].made;
    if (const auto number = ours.first_difference(theirs))
      check_call(*number, ours.at(*number), theirs.at(*number), rank(), r, control_.names());
  }
}

Position WaitMonitor::position() const {
  return {.sequence = record_->sequence,
          .call = record_->call,
          .step = record_->step,
          .waiting_for = awaited_,
          .made = {}};
}

WaitMonitor::Others WaitMonitor::others(const std::vector<Position>& positions) const {
  Others known;
  std::vector<std::string> waiting;
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || positions[r].left || positions[r].elsewhere) continue;
    if (!positions[r].recent())
      known.silent.push_back(r);
    else if (r < 16 && positions[r].connects())
      waiting.push_back(fmt::format("rank {} connects with other ranks", name_of_rank(r)));
    else if (r < 16)
      waiting.push_back(fmt::format("rank {} waits for rank {} in step {} of call #{}",
                                    name_of_rank(r), name_of_rank(positions[r].waiting_for),
                                    positions[r].step, positions[r].sequence));
  }
  for (const std::string& each : waits_elsewhere(positions)) waiting.push_back(each);
  if (!known.silent.empty())
    known.silence = fmt::format("{} {} not answer: stopped, stuck, or busy outside of {}",
                                control_.names().enumerate(known.silent),
                                known.silent.size() == 1 ? "does" : "do",
                                options_.group.empty() ? "the collectives" : "this sub-group");
  known.waiting = fmt::format("{}", fmt::join(waiting, "; "));
  return known;
}

// Of ranks that this one waits for, directly or not, those that wait in other groups. The first 16.
std::vector<std::string> WaitMonitor::waits_elsewhere(
    const std::vector<Position>& positions) const {
  const RankNames names = names_of_job();
  std::set<int> here;  // whose waits the positions tell
  for (int r = 0; r < size(); ++r)
    if (r == rank() || (positions[r].recent() && !positions[r].left))
      here.insert(control_.names().in_job(r));
  const WaitGraph chain = control_.waits().reachable_from(rank_in_job());
  std::vector<std::string> waits;
  for (const auto& [rank, awaited] : chain.waits())
    for (const int each : awaited)
      if (!here.contains(rank) && waits.size() < 16)
        waits.push_back(
            fmt::format("rank {} waits for rank {} in another group", names(rank), names(each)));
  return waits;
}

// "call #7 of sub-group split1.color0 (ranks 2,3 of the job), all_reduce of 1000 fp32 (sum, ring),
// step 2 (of 0 to 5)"
std::string WaitMonitor::where() const {
  return fmt::format(
      "call #{}{}, {}, {}", record_->sequence,
      options_.group.empty() ? "" : " of sub-group " + sub_group_in_words(options_.group),
      describe(record_->call, control_.names()), step_in_words(record_->step, record_->steps));
}

void WaitMonitor::warn_of_wait(double seconds) {
  const Others known = others(control_.positions(Seconds(0)));
  const char* between = known.silence.empty() || known.waiting.empty() ? "" : "; ";
  options_.warn(fmt::format(
      "rank {} has waited for rank {} for {:.0f} s in {}, and will up to {:.0f} s. {}{}{}",
      name_of_rank(rank()), name_of_rank(awaited_), seconds, where(), options_.timeout.count(),
      known.silence, between, known.waiting));
}

// Throws, unless a debugger holds a rank, or the rank at fault is held up by one that connects with
// others, which has a deadline of its own and will know more: then the wait begins again.
void WaitMonitor::time_out() {
  if (const auto held = control_.rank_in_debugger()) {
    options_.warn(fmt::format("rank {} goes on waiting in call #{}: a debugger holds rank {}",
                              name_of_rank(rank()), record_->sequence, *held));
    wait_start_ = Clock::now();
    return;
  }
  auto positions = control_.positions(1.2 * Position::every);
  positions[rank()] = position();
  positions[rank()].heard = Clock::now();
  const Wait wait = wait_at_fault(positions);
  const Position& awaited = positions[wait.peer];
  if (awaited.recent() && awaited.connects() && !awaited.is_past(positions[wait.rank].sequence)) {
    wait_start_ = Clock::now();
    return;
  }
  const Others known = others(positions);
  const auto what_is_known =
      fmt::format("nothing came to rank {} from rank {} for {:.1f} s{}{}", name_of_rank(rank()),
                  name_of_rank(awaited_), options_.timeout.count(),
                  known.waiting.empty() ? "" : "; ", known.waiting);
  const int peer = control_.names().in_job(wait.peer);
  // In a call of all ranks, waits go round in a circle where a message is lost.
  const bool in_circle = awaited.recent() && numbers_ == Numbers::of_this_rank;
  if (awaited.elsewhere || in_circle || control_.failure_of(peer)) {
    follow_beyond(peer, positions, what_is_known);
    return;
  }
  std::string first;
  if (std::ranges::find(known.silent, wait.peer) != known.silent.end())
    first = known.silence + "; ";
  else if (wait.rank != rank())
    first = fmt::format("nothing came to rank {} from rank {}, and rank {} is furthest behind; ",
                        name_of_rank(wait.rank), name_of_rank(wait.peer), name_of_rank(wait.rank));
  throw RankFailure(peer, first + what_is_known);
}

// `peer` is a rank of the job that waits in another group, or has failed there. Throws the cause
// that some rank on the way from it tells, or names the rank at the end. Returns, and the wait goes
// on, if that one connects with others, which has a deadline of its own, or if there is no end, the
// first time: a wait that has just ended may seem to close a circle.
void WaitMonitor::follow_beyond(int peer, const std::vector<Position>& positions,
                                const std::string& what_is_known) {
  const WaitGraph beyond = control_.waits().reachable_from(peer);
  std::vector<int> ends = beyond.waits().empty() ? std::vector{peer} : beyond.ends();
  std::set<int> passed(ends.begin(), ends.end());
  for (const auto& [each, awaited] : beyond.waits()) passed.insert(each);
  for (const int each : passed)
    if (const auto failure = control_.failure_of(each)) throw *failure;
  const bool has_end = !ends.empty();
  for (int r = 0; r < size(); ++r)
    if (positions[r].recent() && positions[r].connects())
      std::erase(ends, control_.names().in_job(r));
  if (!ends.empty())
    throw RankFailure(ends.front(),
                      fmt::format("{} {} not answer: stopped, stuck, or busy elsewhere; {}",
                                  names_of_job().enumerate(ends), ends.size() == 1 ? "does" : "do",
                                  what_is_known));
  wait_start_ = Clock::now();
  if (has_end) return;
  if (std::exchange(may_be_circle_, true))
    throw RankFailure(
        -1, fmt::format("{}; {}", circle_in_words(beyond.circle(), names_of_job()), what_is_known));
  wait_start_ +=
      std::chrono::duration_cast<Clock::duration>(3 * Position::every - options_.timeout);
}

// Follows who waits for whom, from this rank on, to the first rank that does not tell for whom it
// waits, or that is in a later call: it has sent all of this one, and a message was lost. If there
// is none, ranks wait in a circle: there the one furthest behind lacks a message.
//
//     3 -> 2 -> 1, silent        rank 2 waits for rank 1
//     3 -> 2 -> 1 -> 0 -> 2      of the circle 2, 1, 0: the one in the earliest call and step
WaitMonitor::Wait WaitMonitor::wait_at_fault(const std::vector<Position>& positions) const {
  const auto waits_for = [&](int r) { return positions[r].waiting_for; };
  const auto progress = [&](int r) { return std::pair(positions[r].sequence, positions[r].step); };
  const bool same_calls = numbers_ == Numbers::of_the_group;
  std::vector<bool> passed(size());
  int r = rank();
  for (; !passed[r]; r = waits_for(r)) {
    passed[r] = true;
    const Position& next = positions[waits_for(r)];
    const bool waits = next.recent() && !next.left && !next.connects();
    if (!waits || (same_calls && next.is_past(positions[r].sequence))) return {r, waits_for(r)};
  }
  int behind = r;
  if (same_calls)
    for (int each = waits_for(r); each != r; each = waits_for(each))
      if (progress(each) < progress(behind)) behind = each;
  return {behind, waits_for(behind)};
}

// Throws what ended the call: where the histories tell that the ranks made different calls before,
// that is the cause.
void WaitMonitor::rethrow_first_cause() {
  try {
    throw;
  } catch (const UnexpectedMessage& message) {
    // The first mismatch may be in an earlier call. The other ranks tell their histories soon, if
    // they wait as well.
    if (message.out_of_step()) {
      control_.tell_position(position());
      compare_histories(control_.positions(1.2 * Position::every));
    }
    throw Error(message.in_words(control_.names()));
  } catch (const RankFailure& failure) {
    if (!failure.heard_from_another()) compare_histories(control_.positions(Seconds(0)));
    throw;
  }
}

void WaitMonitor::give_up() {
  recorder_.end(FlightEntry::failed);
  try {
    rethrow_first_cause();
  } catch (const RankFailure& failure) {
    const auto text =
        fmt::format("{} [rank {} was in {}]", failure.what(), name_of_rank(rank()), where());
    const RankFailure told(failure.rank, text, failure.heard_from_another() ? failure.cause : text);
    abort(told);
    throw told;
  } catch (const Error& error) {
    abort(error.what());
    throw;
  } catch (const std::bad_alloc&) {
    fail_here("out of memory");
  } catch (const std::exception& error) {
    fail_here(error.what());
  } catch (...) {
    fail_here("unknown exception");
  }
}

void WaitMonitor::fail_here(const char* reason) {
  const RankFailure failure(rank_in_job(), fmt::format("rank {} failed in {}: {}",
                                                       name_of_rank(rank()), where(), reason));
  abort(failure);
  throw failure;
}

void WaitMonitor::abort(const RankFailure& cause) noexcept {
  const RankFailure& first = failure_.keep(cause);
  // Another rank that waits for this one may not see for whom this one waits, in another group.
  const bool blamed_by_another = first.heard_from_another() && first.rank == rank_in_job();
  recorder_.write(first.what(), blamed_by_another ? -1 : first.rank);
  control_.abort(first);
}

// The others are told the cause alone, not in which call this rank ended itself.
void WaitMonitor::interrupt(const std::string& cause) noexcept {
  interruption_.keep(
      RankFailure(rank_in_job(), fmt::format("{} (this rank gave up)", cause), cause));
}

}  // namespace ringside::collectives
