#include "collectives/execution/pipelined_executor.hpp"

#include <algorithm>
#include <climits>
#include <compare>
#include <cstring>

#include "collectives/execution/reduce.hpp"

namespace ringside::collectives {
namespace {

bool contains(ChunkRange range, int chunk) {
  return chunk >= range.first && chunk < range.first + range.count;
}

bool overlap(ChunkRange a, ChunkRange b) {
  return a.first < b.first + b.count && b.first < a.first + a.count;
}

// A message without chunks is news of all that its sender has heard: whatever it has received
// before belongs to it.
bool send_follows(ChunkRange sent, ChunkRange received_before) {
  return sent.count == 0 || overlap(sent, received_before);
}

// One slice of one step of one segment. The order of cursors is the order in which slices are sent,
// and received.
struct Cursor {
  int segment = 0, step = 0, slice = 0;
  auto operator<=>(const Cursor&) const = default;
};

// One call, from its first slice to its last.
class Run {
 public:
  Run(Transport& transport, const ExecutorOptions& options, const Plan& plan, const Call& call,
      std::uint64_t sequence, const Chunks& chunks, const Buffers& buffers,
      std::vector<std::byte>& scratch, FlightRecorder& recorder);
  void carry_out();     // from the first slice to the last
  void record() const;  // where this call stands, for the flight recorder
  std::string where() const;

 private:
  void all_slices();
  bool finished() const { return to_send_ == end_ && sent_ == end_ && to_receive_ == end_; }
  void post_what_can_go();
  void take(const Completion& completion);
  void apply_own_slices();
  void apply_held_slice();
  void apply(std::span<const std::byte> payload);
  int last_step() const { return static_cast<int>(plan_.schedule.steps.size()) - 1; }
  void ask_around();
  void compare_histories(const std::vector<Position>& positions);
  Position position() const;
  struct Others {
    std::vector<int> silent;
    std::string silence;  // "rank 2 does not answer: stopped, ..."; empty if all do
    std::string waiting;  // "rank 3 waits for rank 2 in step 1 of call #7; ..."
  };
  Others others(const std::vector<Position>& positions) const;
  void say_that_it_waits(double seconds);
  void say_that_it_goes_on(double seconds);
  [[noreturn]] void time_out();

  bool may_send(const Cursor& at) const;
  bool may_apply(const Cursor& at) const;

  const Step& step(const Cursor& at) const { return plan_.schedule.steps[at.step]; }
  ChunkRange chunks_of(const Cursor& at, bool sending) const {
    return sending ? step(at).send->chunks : step(at).receive->chunks;
  }
  int slices_of(ChunkRange range) const;
  std::size_t bytes_of(ChunkRange range, int slice) const;
  std::size_t offset_of(ChunkRange range, int slice, ChunkRange within) const;
  std::span<const std::byte> to_be_sent(const Cursor& at) const;
  const std::byte* in_input(ChunkRange range, int slice) const {
    return buffers_.input + offset_of(range, slice, buffers_.given);
  }
  std::byte* place(ChunkRange range, int slice) const;
  bool kept(ChunkRange range) const { return contains(buffers_.kept, range.first); }
  bool to_itself(const Cursor& at) const {
    return at != end_ && step(at).receive && step(at).receive->from == transport_.rank();
  }
  MessageHeader header(const Cursor& at, ChunkRange range) const;

  // The first slice at or after `at` that this rank sends (or receives).
  Cursor settle(Cursor at, bool sending) const;
  Cursor after(Cursor at, bool sending) const { return ++at.slice, settle(at, sending); }

  Transport& transport_;
  const ExecutorOptions& options_;
  const Plan& plan_;
  const Call& call_;
  const std::uint64_t sequence_;
  const Chunks& chunks_;
  const Buffers& buffers_;
  FlightRecorder& recorder_;
  const std::size_t element_;
  std::size_t slice_elements_;
  int window_;  // slices per segment
  Cursor end_;
  std::byte* scratch_ = nullptr;

  std::uint64_t received_bytes_ = 0;
  Cursor to_send_, sent_, to_receive_;  // the next slice to post, to see sent, to receive
  bool receive_posted_ = false, placed_ = false, warned_ = false;
  std::optional<std::span<const std::byte>> held_;  // received, not yet applied
  std::vector<std::byte> aside_;
};

Run::Run(Transport& transport, const ExecutorOptions& options, const Plan& plan, const Call& call,
         std::uint64_t sequence, const Chunks& chunks, const Buffers& buffers,
         std::vector<std::byte>& scratch, FlightRecorder& recorder)
    : transport_(transport),
      options_(options),
      plan_(plan),
      call_(call),
      sequence_(sequence),
      chunks_(chunks),
      buffers_(buffers),
      recorder_(recorder),
      element_(size_of(call.type)),
      slice_elements_(std::max<std::size_t>(1, options.slice_bytes / element_)),
      window_(options.slices_per_segment) {
  int longest = 1;
  bool single_chunks = true;
  for (const Step& s : plan_.schedule.steps)
    for (const auto& range : {s.send ? s.send->chunks : ChunkRange{0, 0},
                              s.receive ? s.receive->chunks : ChunkRange{0, 0}}) {
      longest = std::max(longest, slices_of(range));
      single_chunks = single_chunks && range.count <= 1;
    }
  if (!single_chunks)
    window_ = longest;  // chunks that travel in company are not cut alike by all: one segment
  window_ = std::min(window_, longest);
  end_ = {(longest + window_ - 1) / window_, 0, 0};
  if (plan_.schedule.steps.empty()) end_ = {0, 0, 0};

  bool passes_through = false;  // some chunk is received that does not stay
  for (int c = 0; c < chunks_.chunks(); ++c)
    passes_through = passes_through || (plan_.received[c] && !contains(buffers_.kept, c));
  require(
      !passes_through || single_chunks,
      "a schedule that moves several chunks in one message needs the whole buffer on every rank");
  if (passes_through) {
    const std::size_t slots = static_cast<std::size_t>(chunks_.chunks()) * window_;
    if (scratch.size() < slots * slice_elements_ * element_)
      scratch.resize(slots * slice_elements_ * element_);
    scratch_ = scratch.data();
  }
  to_send_ = sent_ = settle({}, true);
  to_receive_ = settle({}, false);
}

void Run::all_slices() {
  auto last_progress = Clock::now();
  while (!finished()) {
    transport_.throw_if_interrupted();
    post_what_can_go();
    if (finished()) return;
    const auto completion =
        transport_.wait(Deadline::after(std::min(options_.timeout, Position::every)));
    if (completion) {
      received_bytes_ += completion->payload.size();
      take(*completion);
      record();
      if (warned_) say_that_it_goes_on(seconds_since(last_progress));
      last_progress = Clock::now();
    } else {
      ask_around();
      const double waited = seconds_since(last_progress);
      if (waited >= options_.timeout.count()) time_out();
      if (!warned_ && options_.warn_after.count() > 0 && waited >= options_.warn_after.count())
        say_that_it_waits(waited);
    }
  }
}

void Run::record() const {
  const bool receiving = to_receive_ != end_ && !to_itself(to_receive_);
  recorder_.progress(static_cast<std::uint32_t>(std::min(
                         to_send_ < to_receive_ ? to_send_.step : to_receive_.step, last_step())),
                     receiving ? step(to_receive_).receive->from : -1, received_bytes_);
}

// Nothing has moved for a while. That may be as it should; but ranks that wait for each other in
// different calls will wait for ever.
void Run::ask_around() {
  transport_.tell_position(position());
  const auto positions = transport_.positions(Seconds(0));
  for (int r = 0; r < transport_.size(); ++r)
    if (positions[r].recent() && positions[r].sequence == sequence_ &&
        numbered_alike(call_, positions[r].call))
      check_call(sequence_, call_, positions[r].call, transport_.rank(), r);
  compare_histories(positions);
}

// Throws Error, with both calls in its text, where another rank is known to have made another call
// than this one, be it long ago.
void Run::compare_histories(const std::vector<Position>& positions) {
  const CallHistory& ours = transport_.history();
  for (int r = 0; r < transport_.size(); ++r) {
    const CallHistory& theirs = positions[r].made;
    if (const auto number = ours.parted_from(theirs))
      check_call(*number, ours.at(*number), theirs.at(*number), transport_.rank(), r);
  }
}

void Run::carry_out() {
  try {
    all_slices();
  } catch (const OutOfStep&) {
    // Which call was the first that was not alike? The others say so soon, if they wait as well.
    transport_.tell_position(position());
    compare_histories(transport_.positions(1.2 * Position::every));
    throw;
  } catch (const RankFailure& failure) {
    if (!failure.heard_from_another()) compare_histories(transport_.positions(Seconds(0)));
    throw;
  }
}

void Run::post_what_can_go() {
  apply_own_slices();
  while (may_send(to_send_)) {
    transport_.post_send(step(to_send_).send->to, header(to_send_, chunks_of(to_send_, true)),
                         to_be_sent(to_send_));
    to_send_ = after(to_send_, true);
  }
  if (to_receive_ != end_ && !receive_posted_ && !to_itself(to_receive_)) {
    const ChunkRange range = chunks_of(to_receive_, false);
    const std::size_t bytes = bytes_of(range, to_receive_.slice);
    placed_ = step(to_receive_).receive->action == Action::overwrite && may_apply(to_receive_) &&
              bytes > 0;
    transport_.post_receive(
        step(to_receive_).receive->from, header(to_receive_, range),
        placed_ ? std::span(place(range, to_receive_.slice), bytes) : std::span<std::byte>());
    receive_posted_ = true;
  }
}

void Run::take(const Completion& completion) {
  if (completion.kind == Completion::sent)
    sent_ = after(sent_, true);
  else
    held_ = completion.payload;
  if (!held_) return;
  if (may_apply(to_receive_)) return apply_held_slice();
  // It must wait for a send of ours out of the same chunk, and that may wait for the peer, which
  // may be waiting for us to let go of this very slice, as when two ranks exchange a chunk. So it
  // is laid aside.
  if (completion.kind == Completion::received) {
    aside_.assign(held_->begin(), held_->end());
    held_ = aside_;
    transport_.release();
  }
}

// Where a rank sends to itself, no transport is asked.
void Run::apply_own_slices() {
  while (to_itself(to_receive_) && may_apply(to_receive_)) {
    apply(to_be_sent(to_receive_));
    to_receive_ = after(to_receive_, false);
  }
}

void Run::apply(std::span<const std::byte> payload) {
  if (payload.empty()) return;
  const Receive& receive = *step(to_receive_).receive;
  std::byte* into = place(receive.chunks, to_receive_.slice);
  const std::byte* ours =
      plan_.first_touch[to_receive_.step] ? in_input(receive.chunks, to_receive_.slice) : into;
  if (receive.action == Action::add)
    combine(call_.type, call_.reduce, into, ours, payload.data(), payload.size() / element_);
  else
    std::memcpy(into, payload.data(), payload.size());
}

void Run::apply_held_slice() {
  if (!placed_) apply(*held_);
  if (aside_.empty() || held_->data() != aside_.data()) transport_.release();
  held_.reset();
  receive_posted_ = false;
  to_receive_ = after(to_receive_, false);
}

bool Run::may_send(const Cursor& at) const {
  if (at == end_) return false;
  if (sent_ != at) {  // some are under way: all to one peer, and not more than the transport takes
    int under_way = 0;
    for (Cursor c = sent_; c != at; c = after(c, true)) ++under_way;
    if (under_way >= transport_.window() || step(sent_).send->to != step(at).send->to) return false;
  }
  const Plan::Need& need = plan_.send_needs[at.step];
  return need.step == Plan::none ||
         to_receive_ > Cursor{at.segment, need.step, need.same_chunks ? at.slice : INT_MAX};
}

bool Run::may_apply(const Cursor& at) const {
  const Plan::Need& need = plan_.receive_needs[at.step];
  if (need.step != Plan::none)
    return sent_ > Cursor{at.segment, need.step, need.same_chunks ? at.slice : INT_MAX};
  const int last_use = plan_.reused_after[at.step];
  if (at.segment == 0 || last_use == Plan::none || kept(chunks_of(at, false))) return true;
  return sent_ > Cursor{at.segment - 1, last_use,
                        at.slice - window_};  // the scratch's last content has left
}

int Run::slices_of(ChunkRange range) const {
  return std::max<int>(
      1, static_cast<int>((chunks_.size(range) + slice_elements_ - 1) / slice_elements_));
}

std::size_t Run::bytes_of(ChunkRange range, int slice) const {
  const std::size_t begin = slice * slice_elements_;
  return std::min(slice_elements_, chunks_.size(range) - begin) * element_;
}

// In bytes, from the beginning of a buffer that holds the chunks of `within`.
std::size_t Run::offset_of(ChunkRange range, int slice, ChunkRange within) const {
  return (chunks_.begin(range) - chunks_.begin(within) + slice * slice_elements_) * element_;
}

std::span<const std::byte> Run::to_be_sent(const Cursor& at) const {
  const Send& send = *step(at).send;
  const ChunkRange source{send.input.value_or(send.chunks.first), send.chunks.count};
  if (source.count == 0) return {};
  return {plan_.from_input[at.step] ? in_input(source, at.slice) : place(source, at.slice),
          bytes_of(source, at.slice)};
}

std::byte* Run::place(ChunkRange range, int slice) const {
  if (kept(range)) return buffers_.output + offset_of(range, slice, buffers_.kept);
  return scratch_ + (static_cast<std::size_t>(range.first) * window_ + slice % window_) *
                        slice_elements_ * element_;
}

MessageHeader Run::header(const Cursor& at, ChunkRange range) const {
  MessageHeader h;
  h.job = transport_.job();
  h.sequence = sequence_;
  h.call = call_;
  h.step = static_cast<std::uint32_t>(at.step);
  h.slice = static_cast<std::uint32_t>(at.slice);
  h.bytes = bytes_of(range, at.slice);
  return h;
}

Cursor Run::settle(Cursor at, bool sending) const {
  const int steps = static_cast<int>(plan_.schedule.steps.size());
  for (; at.segment < end_.segment; at = {at.segment + 1, 0, (at.segment + 1) * window_}) {
    for (; at.step < steps; at = {at.segment, at.step + 1, at.segment * window_}) {
      const bool takes_part = sending ? step(at).send && step(at).send->to != transport_.rank()
                                      : step(at).receive.has_value();
      if (takes_part &&
          at.slice < std::min((at.segment + 1) * window_, slices_of(chunks_of(at, sending))))
        return at;
    }
  }
  return end_;
}

std::string Run::where() const {
  const int steps = static_cast<int>(plan_.schedule.steps.size());
  const int at = std::min(to_send_ < to_receive_ ? to_send_.step : to_receive_.step, steps - 1);
  return fmt::format("call #{}{}, {}, step {} of {}", sequence_,
                     options_.group.empty() ? "" : " of sub-group " + options_.group,
                     describe(call_), at + 1, steps);
}

Position Run::position() const {
  const bool receiving = to_receive_ != end_ && !to_itself(to_receive_);
  Position mine;
  mine.sequence = sequence_;
  mine.call = call_;
  mine.step = static_cast<std::uint32_t>(receiving ? to_receive_.step : sent_.step);
  mine.waiting_for = receiving ? step(to_receive_).receive->from : step(sent_).send->to;
  return mine;
}

// What is known of the other ranks: who has told nothing recently, and what the rest is doing.
Run::Others Run::others(const std::vector<Position>& positions) const {
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

void Run::say_that_it_waits(double seconds) {
  warned_ = true;
  const Others known = others(transport_.positions(Seconds(0)));
  const char* between = known.silence.empty() || known.waiting.empty() ? "" : "; ";
  options_.warn(fmt::format(
      "rank {} has waited for rank {} for {:.0f} s in {}, and will up to {:.0f} s. {}{}{}",
      transport_.rank(), position().waiting_for, seconds, where(), options_.timeout.count(),
      known.silence, between, known.waiting));
}

void Run::say_that_it_goes_on(double seconds) {
  warned_ = false;
  options_.warn(fmt::format("rank {} went on after {:.0f} s, in call #{}", transport_.rank(),
                            seconds, sequence_));
}

void Run::time_out() {
  const Position mine = position();
  const Others known = others(transport_.positions(1.2 * Position::every));
  const int blamed = known.silent.empty() ? mine.waiting_for : known.silent.front();
  throw RankFailure(
      blamed,
      fmt::format("{}{}nothing came to rank {} from rank {} for {:.1f} s{}{}", known.silence,
                  known.silence.empty() ? "" : "; ", transport_.rank(), mine.waiting_for,
                  options_.timeout.count(), known.waiting.empty() ? "" : "; ", known.waiting));
}

}  // namespace

// Where the data lies at each step.
static void place_data(Plan& p, bool in_place) {
  p.received.assign(p.schedule.chunks, false);
  const auto received = [&](ChunkRange range) {
    return std::count(p.received.begin() + range.first,
                      p.received.begin() + range.first + range.count, true);
  };
  for (const Step& step : p.schedule.steps) {
    p.from_input.push_back(step.send && (step.send->input || received(step.send->chunks) == 0));
    p.first_touch.push_back(step.receive && received(step.receive->chunks) == 0);
    if (step.send && step.send->input && in_place &&
        received({*step.send->input, step.send->chunks.count}) > 0)
      p.keeps_input = true;
    const auto mixed = [&](ChunkRange range) {
      return received(range) > 0 && received(range) < range.count;
    };
    if (step.send && !step.send->input && mixed(step.send->chunks)) p.starts_in_output = true;
    if (!step.receive) continue;
    if (step.receive->action == Action::add && mixed(step.receive->chunks))
      p.starts_in_output = true;
    std::fill_n(p.received.begin() + step.receive->chunks.first, step.receive->chunks.count, true);
  }
  if (!p.starts_in_output) return;
  p.first_touch.assign(p.first_touch.size(), false);
  for (std::size_t s = 0; s < p.from_input.size(); ++s)
    p.from_input[s] = p.from_input[s] && p.schedule.steps[s].send->input;
}

Plan plan(Schedule schedule, bool in_place) {
  Plan p;
  p.schedule = std::move(schedule);
  place_data(p, in_place);
  const auto& steps = p.schedule.steps;
  const int n = static_cast<int>(steps.size());
  p.send_needs.resize(n), p.receive_needs.resize(n), p.reused_after.assign(n, Plan::none);
  const auto reads = [&](int s) {  // what must not be overwritten before this step's send is done
    const bool elsewhere = p.from_input[s] && (!in_place || p.keeps_input);
    if (!steps[s].send || elsewhere) return ChunkRange{0, 0};
    return ChunkRange{steps[s].send->input.value_or(steps[s].send->chunks.first),
                      steps[s].send->chunks.count};
  };
  for (int s = 0; s < n; ++s) {
    if (steps[s].send && !steps[s].send->input)
      for (int d = s - 1; d >= 0 && p.send_needs[s].step == Plan::none; --d)
        if (steps[d].receive && send_follows(steps[s].send->chunks, steps[d].receive->chunks))
          p.send_needs[s] = {d, steps[d].receive->chunks == steps[s].send->chunks};
    if (!steps[s].receive) continue;
    const ChunkRange into = steps[s].receive->chunks;
    for (int d = s; d >= 0 && p.receive_needs[s].step == Plan::none; --d)
      if (overlap(reads(d), into)) p.receive_needs[s] = {d, reads(d) == into};
    for (int d = 0; d < n; ++d)
      if (overlap(reads(d), into)) p.reused_after[s] = d;
  }
  return p;
}

// What is to be copied before the first step: chunks of the output that nothing is received into,
// and what the plan asks for.
static Buffers prepare(const Plan& plan, std::size_t element, const Chunks& chunks, Buffers buffers,
                       std::vector<std::byte>& kept_input) {
  const auto at = [&](auto* buffer, ChunkRange range, int c) {
    return buffer + (chunks.begin(c) - chunks.begin(range)) * element;
  };
  for (int c = 0; c < chunks.chunks(); ++c) {
    const bool wanted = plan.starts_in_output || !plan.received[c];
    if (!wanted || chunks.size(c) == 0 || !contains(buffers.given, c) || !contains(buffers.kept, c))
      continue;
    const std::byte* in = at(buffers.input, buffers.given, c);
    std::byte* out = at(buffers.output, buffers.kept, c);
    if (in != out) std::memcpy(out, in, chunks.size(c) * element);
  }
  if (plan.keeps_input) {
    kept_input.assign(buffers.input, buffers.input + chunks.size(buffers.given) * element);
    buffers.input = kept_input.data();
  }
  return buffers;
}

void warn_on_stderr(const std::string& sentence) {
  fmt::print(stderr, "ringside: {}\n", sentence);
}

void Executor::run(const Plan& plan, const Call& call, std::uint64_t sequence, const Chunks& chunks,
                   const Buffers& given_buffers) {
  const Buffers buffers = prepare(plan, size_of(call.type), chunks, given_buffers, kept_input_);
  recorder_.begin(sequence, call, static_cast<std::uint32_t>(plan.schedule.steps.size()));
  if (call.collective != Collective::point_to_point) transport_.history().add(sequence, call);

  Run run(transport_, options_, plan, call, sequence, chunks, buffers, scratch_, recorder_);
  try {
    run.record();
    run.carry_out();
    recorder_.end(FlightEntry::done);
  } catch (const RankFailure& failure) {
    const auto text =
        fmt::format("{} [rank {} was in {}]", failure.what(), transport_.rank(), run.where());
    const RankFailure told(failure.rank, text, failure.heard_from_another() ? failure.cause : text);
    recorder_.end(FlightEntry::failed);
    recorder_.write(told.what());
    transport_.abort(told);
    throw told;
  } catch (const Error& error) {
    recorder_.end(FlightEntry::failed);
    recorder_.write(error.what());
    transport_.abort(RankFailure(transport_.rank(), error.what()));
    throw;
  }
}

}  // namespace ringside::collectives
