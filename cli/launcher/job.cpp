#include "cli/launcher/job.hpp"

#include <algorithm>

#include <poll.h>

#include <fmt/format.h>

#include "base/text/words.hpp"

namespace ringside::cli {
namespace {

constexpr Seconds between_sigterm_and_sigkill{2};
constexpr Seconds between_sigkill_and_giving_up{1};  // to read the last output
constexpr Seconds longest_delay_of_death{0.5};       // between closed connections and waitid()
constexpr Seconds between_looks_at_members{0.25};    // for stopped ranks
constexpr Seconds longest_stop{1};                   // of a rank, before the others go on
constexpr int give_up = 0;                           // instead of a signal

// How a child has ended, which still has to be reaped; none while it runs.
std::optional<siginfo_t> end_of(pid_t pid) {
  siginfo_t end{};
  const bool known =
      ::waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOHANG | WNOWAIT) == 0;
  return known && end.si_pid != 0 ? std::optional(end) : std::nullopt;
}

}  // namespace

Job::Job(const LaunchOptions& options)
    : options_(options),
      members_(options.members.get()),
      rendezvous_(choose_rendezvous_address(options)),
      reaper_(options.ranks, flights_.temporary()) {
  if (members_) rendezvous_.listening.reset();  // they tell each other where they listen
}

Job::~Job() {
  for (auto& rank : ranks_) {
    if (rank.running) reap(rank);
  }
}

int Job::run() {
  for (int local_rank = 0; local_rank < options_.ranks; ++local_rank)
    ranks_.push_back(start(local_rank));
  while (!done()) {
    wait_for_events();
    handle_signals();
    check_for_lost_reader();
    forward_output();
    serve_members();
    reap_ended_ranks();
    escalate();
    if (!any_running() && !reported_records_) report_flight_records();
  }
  return exit_code_;
}

Job::Rank Job::start(int local_rank) {
  auto variables = rank_environment(options_, rendezvous_, local_rank);
  if (!flights_.path().empty()) variables["RINGSIDE_FLIGHT_DIR"] = flights_.path();
  const bool bare = options_.rank_0_bare && variables.at("RANK") == "0";
  // Only rank 0, the first, inherits the socket. When it has gone, nobody listens.
  ListeningPort* listening = rendezvous_.listening.get();
  FileDescriptor inherited;
  if (members_) inherited = members_->start(std::stoi(variables.at("RANK")), variables);
  RankProcess process = start_rank(options_.command, variables, bare, signals_,
                                   listening ? listening->descriptor() : inherited.get());
  if (listening) listening->close();
  reaper_.add(process.pid);
  const auto lines_to = [&](int fd) {
    return LineForwarder(fmt::format("{}[{}] ", line_start(fd), process.rank));
  };
  return {.number = process.rank,
          .local_rank = local_rank,
          .pid = process.pid,
          .streams = {Stream{std::move(process.standard_output), lines_to(STDOUT_FILENO), &out_},
                      Stream{std::move(process.standard_error), lines_to(STDERR_FILENO), &err_}},
          .bare = bare};
}

bool Job::any_running() const {
  return std::ranges::any_of(ranks_, [](const auto& rank) { return rank.running; });
}

// Sleeps until a signal arrives, a rank has written something, the launcher's own output can be
// written, or the deadline has passed.
void Job::wait_for_events() {
  std::vector<pollfd> events{{signals_.fd(), POLLIN, 0}};
  for (const auto& rank : ranks_) {
    for (const auto& stream : rank.streams) {
      if (stream.pipe.is_open() && !stream.to->full())
        events.push_back({stream.pipe.get(), POLLIN, 0});
    }
  }
  for (const OutputQueue* queue : {&out_, &err_}) {
    if (!queue->empty()) events.push_back({queue->fd(), POLLOUT, 0});
  }
  if (members_)
    for (const int each : members_->descriptors()) events.push_back({each, POLLIN, 0});
  std::optional<Seconds> limit;
  if (deadline_) limit = deadline_->remaining();
  if (members_)
    limit = std::min(limit.value_or(between_looks_at_members), between_looks_at_members);
  const timespec patience = limit ? to_timespec(*limit) : timespec{};
  ::ppoll(events.data(), events.size(), limit ? &patience : nullptr, nullptr);
}

void Job::handle_signals() {
  for (const int signal : signals_.take()) {
    if (signal == SIGCHLD) continue;  // it only wakes the loop, which calls reap_ended_ranks()
    if (!stopped_) {
      print(fmt::format("{}: ending all ranks (once more to kill them)", name_of_signal(signal)));
      stop(signal);
    } else {
      next_signal_ = SIGKILL;
      deadline_ = Deadline::after(Seconds(0));
    }
  }
}

// Forwards a signal to the ranks, which then have the grace period to end.
void Job::stop(int signal) {
  stopped_ = true;
  if (!ending_) exit_code_ = 128 + signal;
  ending_ = true;
  send_to_all(signal == SIGPIPE ? SIGTERM : signal);
  next_signal_ = SIGKILL;
  deadline_ = Deadline::after(options_.grace_after_signal.value_or(options_.grace));
}

void Job::send_to_all(int signal) {
  for (const auto& rank : ranks_) {
    if (rank.running) ::kill(-rank.pid, signal);
  }
}

// After each missed deadline the next stage: SIGTERM, SIGKILL, and at last drop unread output.
void Job::escalate() {
  if (!deadline_ || !deadline_->expired()) return;
  const double waited = deadline_->total().count();
  const int signal = next_signal_;
  deadline_.reset();
  if (signal == give_up) {
    out_.give_up();
    err_.give_up();
    return;
  }
  std::vector<int> late;
  std::vector<std::string> names;
  for (const auto& rank : ranks_) {
    if (!rank.running) continue;
    late.push_back(rank.number);
    names.push_back(name_of(rank));
  }
  if (!late.empty() && waited > 0 && !lost_reader_)
    print(fmt::format("still running after {:g} s: {}; sending {}", waited,
                      options_.place ? enumerate(names) : ranks_in_words(late),
                      name_of_signal(signal)));
  send_to_all(signal);
  next_signal_ = signal == SIGTERM ? SIGKILL : give_up;
  deadline_ = Deadline::after(signal == SIGTERM ? between_sigterm_and_sigkill
                                                : between_sigkill_and_giving_up);
}

bool Job::lost_its_reader(const Rank& rank, const siginfo_t& end) {
  return rank.bare && end.si_code == CLD_KILLED && end.si_status == SIGPIPE;
}

// If nobody reads the output any more, as after `| head`, the job ends silently, as SIGPIPE ends a
// single program. SIGPIPE has killed the bare rank already; what other ranks print about its death
// is dropped.
void Job::check_for_lost_reader() {
  if (ending_) return;
  for (const auto& rank : ranks_) {
    if (!rank.bare || !rank.running) continue;
    if (const auto end = end_of(rank.pid); end && lost_its_reader(rank, *end)) lost_reader_ = true;
  }
  if (out_.broken() && out_.error() != EPIPE) return report_full_output();
  if (out_.broken()) lost_reader_ = true;
  if (lost_reader_) stop(SIGPIPE);
}

void Job::report_full_output() {
  print(fmt::format("cannot write to standard output: {}; ending all ranks",
                    std::strerror(out_.error())));
  stop(SIGTERM);
  exit_code_ = 1;
}

// The connections of a dying rank close a moment before waitid() reports its death, and the other
// ranks complain at once. So if stdout has no reader, wait for the bare rank's death before the
// first complaint is forwarded.
void Job::wait_for_lost_reader() {
  pollfd event{STDOUT_FILENO, 0, 0};
  if (waited_for_lost_reader_ || ::poll(&event, 1, 0) != 1 || (event.revents & POLLERR) == 0)
    return;
  waited_for_lost_reader_ = true;
  const auto limit = Deadline::after(longest_delay_of_death);
  while (!ending_ && !limit.expired()) {
    check_for_lost_reader();
    ::usleep(1000);
  }
}

void Job::forward_output() {
  for (auto& rank : ranks_) {
    for (auto& stream : rank.streams) {
      if (!stream.to->full()) forward(stream);
    }
  }
  for (OutputQueue* queue : {&out_, &err_}) {
    pollfd event{queue->fd(), POLLOUT, 0};
    if (!queue->empty() && ::poll(&event, 1, 0) == 1) queue->write_some();
  }
  check_for_lost_reader();
}

// Reads what has arrived, at most 64 KiB, the capacity of a pipe.
void Job::forward(Stream& stream) {
  std::array<char, 64 * 1024> bytes;
  if (!stream.pipe.is_open()) return;
  const ssize_t got = ::read(stream.pipe.get(), bytes.data(), bytes.size());
  if (got > 0 && stream.to == &err_) wait_for_lost_reader();
  if (got > 0 && !lost_reader_)
    stream.lines.feed({bytes.data(), static_cast<std::size_t>(got)}, Clock::now(),
                      stream.to->text());
  if (got == 0) {
    stream.lines.finish(stream.to->text());
    stream.pipe.close();
  }
}

void Job::reap_ended_ranks() {
  for (auto& rank : ranks_) {
    const auto end = rank.running ? end_of(rank.pid) : std::nullopt;
    if (!end) continue;
    rank.end = *end;
    reap(rank);
    if (!ending_ && lost_its_reader(rank, *end)) lost_reader_ = true;
    if (members_ && exit_code_of(*end) == 0) members_->finished(rank.number);
    if (members_ && go_on_without(rank)) continue;
    if (exit_code_of(*end) != 0) failed_ranks_.push_back(&rank);
  }
  if (failed_ranks_.empty() || ending_) return;
  if (lost_reader_) return stop(SIGPIPE);
  if (!deadline_) deadline_ = Deadline::after(options_.grace);
  read_failures();
  const Rank& suspect = *find_suspect();
  if (knows_culprit(suspect)) report_failure(suspect);
}

// A rank writes a record in each group that fails: the first tells when, and the first that blames
// a rank tells whom. A sub-group has its own numbers of ranks, but its record has the process's
// number.
void Job::read_failures() {
  auto heads = flights_.failures();
  std::ranges::sort(heads, {}, &collectives::FlightHeader::written_ns);
  for (Rank& rank : ranks_) {
    rank.failed_at = 0;
    rank.blamed = -1;
    for (const auto& head : heads) {
      if (head.pid != rank.pid && (head.group[0] != '\0' || head.rank != rank.number)) continue;
      if (rank.failed_at == 0) rank.failed_at = head.written_ns;
      if (rank.blamed < 0) rank.blamed = head.blamed;
    }
  }
}

// Of the ranks that have failed, the likeliest cause: one that a signal killed, else one that ended
// without a word, else the one that failed first. A rank writes its flight record before it tells
// the others why it gives up, so those that give up because of it write later.
const Job::Rank* Job::find_suspect() const {
  const auto unlikeliness = [](const Rank* rank) {
    return std::pair(!was_killed(rank->end), rank->failed_at);
  };
  return *std::ranges::min_element(failed_ranks_, {}, unlikeliness);
}

// A rank that complains may end before the rank that it complains of, which was killed first, but
// dies slowly, or has given up first, but has more to do before it ends. So the launcher waits for
// these before it names anybody: SIGCHLD wakes it.
bool Job::knows_culprit(const Rank& suspect) const {
  const Rank& cause = cause_of(suspect);
  const bool waited = &cause != &suspect;  // the others, which wait as well, soon tell for whom
  const auto may_be_the_cause = [&](const Rank& rank) {
    const bool failed_before = rank.failed_at != 0 && rank.failed_at < suspect.failed_at;
    return rank.running && (failed_before || is_dying(rank.pid) || (waited && &rank != &cause));
  };
  return was_killed(suspect.end) || deadline_->expired() ||
         std::ranges::none_of(ranks_, may_be_the_cause);
}

// Kills what is left of a rank's process group and forwards its last output. The group's leader is
// reaped after the kill: until then the kernel cannot reuse the group's number.
void Job::reap(Rank& rank) {
  ::kill(-rank.pid, SIGKILL);
  reaper_.remove(rank.pid);
  while (::waitpid(rank.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  rank.running = false;
  for (auto& stream : rank.streams) {
    forward(stream);
    stream.lines.finish(stream.to->text());
    stream.pipe.close();
  }
}

std::string Job::name_of(const Rank& rank) const {
  return options_.place ? fmt::format("rank {} ({})", rank.number, options_.place(rank.number))
                        : fmt::format("rank {}", rank.number);
}

// Follows the records from each rank to the one that it blames: a rank that waited too long for
// another one is not the cause, and in a mesh that one may have waited for a third. A rank that is
// stopped or stuck is the end of such a chain.
const Job::Rank& Job::cause_of(const Rank& suspect) const {
  const Rank* cause = &suspect;
  for (std::size_t hops = 0; hops < ranks_.size(); ++hops) {
    const auto next = std::ranges::find_if(ranks_, [&](const Rank& rank) {
      return rank.number == cause->blamed && (rank.running || rank.failed_at != 0);
    });
    if (next == ranks_.end()) break;
    cause = &*next;
  }
  return *cause;
}

void Job::serve_members() {
  if (!members_) return;
  if (!ending_) end_stopped_ranks();
  if (const auto stuck = members_->serve()) {
    const auto rank = std::ranges::find(ranks_, *stuck, &Rank::number);
    print(fmt::format("{} does not answer: ending it", name_of(*rank)));
    ::kill(-rank->pid, SIGKILL);
  }
  if (members_->problem() && !ending_)
    end_for(fmt::format("{}: go on from the last checkpoint, with --resume", *members_->problem()),
            1);
}

// A rank that comes to life again later must not go on by itself: it is killed.
void Job::end_stopped_ranks() {
  for (Rank& rank : ranks_) {
    if (!rank.running) continue;
    if (!is_stopped(rank.pid)) {
      rank.stopped.reset();
    } else if (!rank.stopped) {
      rank.stopped = Deadline::after(longest_stop);
    } else if (rank.stopped->expired()) {
      print(fmt::format("{} has been stopped for {:g} s: ending it", name_of(rank),
                        longest_stop.count()));
      ::kill(-rank.pid, SIGKILL);
      rank.stopped.reset();
    }
  }
}

// Whether the job survives the end of this rank. An error of a rank's own ends the job, as the
// others would meet it too.
bool Job::go_on_without(Rank& rank) {
  if (!was_killed(rank.end)) return false;
  const auto loss = members_->lost(rank.number);
  if (ending_ || loss.consequence.empty()) return true;
  const std::string sentence =
      fmt::format("{} {}; {}", name_of(rank), in_words(rank.end), loss.consequence);
  if (loss.ends_job) {
    end_for(sentence, exit_code_of(rank.end));
    return true;
  }
  print(sentence);
  if (loss.is_replaced) rank = start(rank.local_rank);
  return true;
}

void Job::end_for(const std::string& sentence, int exit_code) {
  print(sentence);
  exit_code_ = exit_code;
  failed_ = true;
  ending_ = true;
  deadline_ = Deadline::after(options_.grace_after_signal.value_or(options_.grace));
}

void Job::report_failure(const Rank& culprit) {
  const Rank& cause = cause_of(culprit);
  const std::string end = fmt::format("{} {}", name_of(culprit), in_words(culprit.end));
  const bool is_stuck = cause.running && cause.failed_at == 0;
  print(is_stuck ? fmt::format("{} does not answer, so {}", name_of(cause), end) : end);
  exit_code_ = exit_code_of(culprit.end);
  failed_ = true;
  ending_ = true;
  deadline_ = Deadline::after(options_.grace);
}

void Job::report_flight_records() {
  reported_records_ = true;
  if (flights_.keep_or_remove(failed_))
    print(fmt::format("what each rank was doing: ringside postmortem {}", flights_.path()));
}

void Job::print(const std::string& sentence) {
  err_.text() += fmt::format("{}ringside: {}\n", line_start(STDERR_FILENO), sentence);
}

// What precedes a line of the launcher: a bare rank 0 may have left the cursor at the end of a
// progress line.
const char* Job::line_start(int fd) const {
  return options_.rank_0_bare && ::isatty(fd) == 1 ? "\r\x1b[K" : "";
}

}  // namespace ringside::cli
