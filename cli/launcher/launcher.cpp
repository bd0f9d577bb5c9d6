#include "cli/launcher/launcher.hpp"

#include <algorithm>
#include <array>
#include <csignal>

#include <poll.h>

#include "cli/launcher/flight_folder.hpp"
#include "cli/launcher/guardian.hpp"
#include "cli/launcher/line_forwarder.hpp"
#include "cli/launcher/output_queue.hpp"
#include "cli/launcher/rank_process.hpp"

namespace ringside::cli {
namespace {

constexpr Seconds between_sigterm_and_sigkill{2};
constexpr Seconds between_sigkill_and_giving_up{1};  // for the last output to be read
constexpr int give_up = 0;                           // in the place of a signal

// One of a rank's two streams on its way to the launcher's own.
struct Stream {
  FileDescriptor pipe;
  LineForwarder lines;
  OutputQueue* to;
};

struct Member {
  int rank = 0;
  pid_t pid = -1;
  bool running = true;
  std::array<Stream, 2> streams;
  bool bare = false;  // it writes to our own stdout and stderr
};

bool lost_its_reader(const Member& member, const siginfo_t& end) {
  return member.bare && end.si_code == CLD_KILLED && end.si_status == SIGPIPE;
}

class Job {
 public:
  explicit Job(const LaunchOptions& options)
      : options_(options), point_(choose_meeting_point(options)), guardian_(options.ranks) {}
  ~Job();  // however we leave: no rank stays behind
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  int run();

 private:
  void start(int local_rank);
  bool anyone_running() const;
  bool done() const { return !anyone_running() && out_.empty() && err_.empty(); }
  void wait_for_events();
  void act_on_signals();
  void stop(int signal);
  void notice_a_lost_reader();
  void wait_for_a_lost_reader();
  void forward_output();
  void forward(Stream& stream);
  void collect_the_dead();
  void bury(Member& member);
  void note_failure(const Member& member, const siginfo_t& end);
  void escalate();
  void point_to_the_records();
  void signal_all(int signal);
  std::string running_ranks() const;
  void say(const std::string& sentence);
  const char* fresh_line(int fd) const;

  const LaunchOptions& options_;
  MeetingPoint point_;
  FlightFolder flights_;
  Guardian guardian_;  // forked before there are handlers that it would inherit
  SignalInbox signals_;
  OutputQueue out_{STDOUT_FILENO};
  OutputQueue err_{STDERR_FILENO};
  std::vector<Member> members_;

  int exit_code_ = 0;
  bool ending_ = false;  // a rank has failed, or we were told to stop
  bool told_to_stop_ = false;
  bool nobody_reads_ = false;  // our stdout has no reader any more, and a rank has found out
  bool waited_for_it_ = false;
  bool failed_ = false;  // a rank has, before we were told to stop
  bool all_told_ = false;
  std::optional<Deadline> patience_;  // how long the ranks may still take, ...
  int next_signal_ = SIGTERM;         // ... and what comes then
};

Job::~Job() {
  for (auto& member : members_) {
    if (member.running) bury(member);
  }
}

int Job::run() {
  for (int local_rank = 0; local_rank < options_.ranks; ++local_rank) start(local_rank);
  while (!done()) {
    wait_for_events();
    act_on_signals();
    notice_a_lost_reader();
    forward_output();
    collect_the_dead();
    escalate();
    if (!anyone_running() && !all_told_) point_to_the_records();
  }
  return exit_code_;
}

void Job::start(int local_rank) {
  auto place = place_of_rank(options_, point_, local_rank);
  if (flights_.path()) place["RINGSIDE_FLIGHT_DIR"] = *flights_.path();
  const bool bare = options_.output == RankOutput::rank_0_bare && place.at("RANK") == "0";
  RankProcess process = start_rank(options_.command, place, bare, signals_);
  guardian_.watch(process.pid);
  const auto lines_to = [&](int fd) {
    return LineForwarder(fmt::format("{}[{}] ", fresh_line(fd), process.rank));
  };
  members_.push_back(
      {.rank = process.rank,
       .pid = process.pid,
       .streams = {Stream{std::move(process.standard_output), lines_to(STDOUT_FILENO), &out_},
                   Stream{std::move(process.standard_error), lines_to(STDERR_FILENO), &err_}},
       .bare = bare});
}

bool Job::anyone_running() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const auto& member) { return member.running; });
}

// Sleeps until a signal comes, a rank has said something, our own output can be written, or
// patience is at its end.
void Job::wait_for_events() {
  std::vector<pollfd> events{{signals_.fd(), POLLIN, 0}};
  for (const auto& member : members_) {
    for (const auto& stream : member.streams) {
      if (stream.pipe.is_open() && !stream.to->full())
        events.push_back({stream.pipe.get(), POLLIN, 0});
    }
  }
  for (const OutputQueue* queue : {&out_, &err_}) {
    if (!queue->empty()) events.push_back({queue->fd(), POLLOUT, 0});
  }
  ::poll(events.data(), events.size(), patience_ ? patience_->remaining_ms() : -1);
}

void Job::act_on_signals() {
  for (const int signal : signals_.take()) {
    if (signal == SIGCHLD) continue;  // collect_the_dead looks anyway: it had only to wake us
    if (!told_to_stop_) {
      say(fmt::format("{}: ending all ranks (once more to kill them)", name_of_signal(signal)));
      stop(signal);
    } else {
      next_signal_ = SIGKILL;
      patience_ = Deadline::after(Seconds(0));
    }
  }
}

// Hands a signal on to the ranks, which may then take the grace period to end.
void Job::stop(int signal) {
  told_to_stop_ = true;
  if (!ending_) exit_code_ = 128 + signal;
  ending_ = true;
  signal_all(signal == SIGPIPE ? SIGTERM : signal);
  next_signal_ = SIGKILL;
  patience_ = Deadline::after(options_.grace);
}

// Nobody reads what the ranks print, as after `| head`. That ends the job as it ends a single
// program, by SIGPIPE and without a word: the rank that wrote to our stdout has met that signal
// itself, and what the others have to say of its death is not forwarded.
void Job::notice_a_lost_reader() {
  if (ending_) return;
  for (const auto& member : members_) {
    siginfo_t end{};
    const bool looked =
        member.bare && member.running &&
        ::waitid(P_PID, static_cast<id_t>(member.pid), &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        end.si_pid != 0;
    if (looked && lost_its_reader(member, end)) nobody_reads_ = true;
  }
  if (out_.broken()) nobody_reads_ = true;
  if (nobody_reads_) stop(SIGPIPE);
}

// A dying rank's connections close a moment before it counts as dead, and others are quick to
// complain. So where stdout has no reader, and before the first complaint is forwarded, the rank
// that writes there is given that moment.
void Job::wait_for_a_lost_reader() {
  pollfd event{STDOUT_FILENO, 0, 0};
  if (waited_for_it_ || ::poll(&event, 1, 0) != 1 || (event.revents & POLLERR) == 0) return;
  waited_for_it_ = true;
  for (const auto moment = Deadline::after(Seconds(0.5)); !ending_ && !moment.expired();
       ::usleep(1000))
    notice_a_lost_reader();
}

void Job::forward_output() {
  for (auto& member : members_) {
    for (auto& stream : member.streams) {
      if (!stream.to->full()) forward(stream);
    }
  }
  for (OutputQueue* queue : {&out_, &err_}) {
    pollfd event{queue->fd(), POLLOUT, 0};
    if (!queue->empty() && ::poll(&event, 1, 0) == 1) queue->write_some();
  }
  notice_a_lost_reader();
}

// Takes what has arrived, at most one pipe's full.
void Job::forward(Stream& stream) {
  std::array<char, 64 * 1024> bytes;
  if (!stream.pipe.is_open()) return;
  const ssize_t got = ::read(stream.pipe.get(), bytes.data(), bytes.size());
  if (got > 0 && stream.to == &err_) wait_for_a_lost_reader();
  if (got > 0 && !nobody_reads_)
    stream.lines.feed({bytes.data(), static_cast<std::size_t>(got)}, Clock::now(),
                      stream.to->text());
  if (got == 0) {
    stream.lines.finish(stream.to->text());
    stream.pipe.close();
  }
}

// Where several have ended since we last looked, one killed by a signal is the cause, and one that
// complains probably an effect.
void Job::collect_the_dead() {
  const Member* failed = nullptr;
  siginfo_t how{};
  for (auto& member : members_) {
    siginfo_t end{};
    if (!member.running ||
        ::waitid(P_PID, static_cast<id_t>(member.pid), &end, WEXITED | WNOHANG | WNOWAIT) != 0)
      continue;
    if (end.si_pid == 0) continue;  // it runs
    bury(member);
    const bool better_cause =
        failed == nullptr || (how.si_code == CLD_EXITED && end.si_code != CLD_EXITED);
    if (exit_code_of(end) != 0 && better_cause) {
      failed = &member;
      how = end;
    }
  }
  if (failed == nullptr || ending_) return;
  nobody_reads_ = lost_its_reader(*failed, how);
  if (nobody_reads_) return stop(SIGPIPE);
  note_failure(*failed, how);
}

// Ends what is left of a rank's process group and forwards its last words. The leader is reaped
// last: until then nobody else can get the group's number.
void Job::bury(Member& member) {
  ::kill(-member.pid, SIGKILL);
  guardian_.forget(member.pid);
  while (::waitpid(member.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  member.running = false;
  for (auto& stream : member.streams) {
    forward(stream);
    stream.lines.finish(stream.to->text());
    stream.pipe.close();
  }
}

void Job::note_failure(const Member& member, const siginfo_t& end) {
  say(fmt::format("rank {} {}", member.rank, in_words(end)));
  exit_code_ = exit_code_of(end);
  failed_ = true;
  ending_ = true;
  patience_ = Deadline::after(options_.grace);
}

void Job::point_to_the_records() {
  all_told_ = true;
  if (flights_.keep_or_remove(failed_))
    say(fmt::format("what each rank was doing: ringside postmortem {}", *flights_.path()));
}

void Job::escalate() {
  if (!patience_ || !patience_->expired()) return;
  const double waited = patience_->total().count();
  const int signal = next_signal_;
  patience_.reset();
  if (signal == give_up) {
    out_.give_up();
    err_.give_up();
    return;
  }
  const std::string late = running_ranks();
  if (!late.empty() && waited > 0 && !nobody_reads_)
    say(fmt::format("still running after {:g} s: {}; sending {}", waited, late,
                    name_of_signal(signal)));
  signal_all(signal);
  next_signal_ = signal == SIGTERM ? SIGKILL : give_up;
  patience_ = Deadline::after(signal == SIGTERM ? between_sigterm_and_sigkill
                                                : between_sigkill_and_giving_up);
}

void Job::signal_all(int signal) {
  for (const auto& member : members_) {
    if (member.running) ::kill(-member.pid, signal);
  }
}

// "rank 1", "ranks 0, 3"; empty if none.
std::string Job::running_ranks() const {
  std::vector<int> running;
  for (const auto& member : members_) {
    if (member.running) running.push_back(member.rank);
  }
  if (running.empty()) return "";
  return fmt::format("{} {}", running.size() == 1 ? "rank" : "ranks", fmt::join(running, ", "));
}

void Job::say(const std::string& sentence) {
  err_.text() += fmt::format("{}ringside: {}\n", fresh_line(STDERR_FILENO), sentence);
}

// What to write before a line of ours: a bare rank 0 may have left the cursor at the end of a
// progress line.
const char* Job::fresh_line(int fd) const {
  return options_.output == RankOutput::rank_0_bare && ::isatty(fd) == 1 ? "\r\x1b[K" : "";
}

// A process started with 0, 1 or 2 closed would get its first pipe there, and take it for its
// output.
void fill_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
  }
}

}  // namespace

int launch(const LaunchOptions& options) {
  require(!options.command.empty(), "no program to start");
  require(options.ranks >= 1, "at least 1 rank is needed, not {}", options.ranks);
  require(options.nodes >= 1, "at least 1 node is needed, not {}", options.nodes);
  require(options.node_rank >= 0 && options.node_rank < options.nodes,
          "node {} does not exist: {} nodes are numbered 0 to {}", options.node_rank, options.nodes,
          options.nodes - 1);
  fill_standard_streams();
  Job job(options);
  return job.run();
}

}  // namespace ringside::cli
