#include "cli/launcher/rank_process.hpp"

#include <csignal>

#include <sys/prctl.h>

namespace ringside::cli {
namespace {

// Our own environment with `place` written over it, as "NAME=value".
std::vector<std::string> environment_with(const Environment& place) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!place.contains(text.substr(0, text.find('=')))) result.push_back(text);
  }
  for (const auto& [name, value] : place) result.push_back(name + "=" + value);
  return result;
}

// What exec(3) wants: pointers into `texts`, and a null pointer at the end.
std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Everything that a forked child needs, made before the fork: between fork and exec it may not
// allocate.
struct ChildPlan {
  std::vector<char*> arguments;
  std::vector<char*> environment;
  pid_t launcher;
  int standard_output;
  int standard_error;
  int could_not_execute;  // here the child writes errno
};

// Runs in the child. Async-signal-safe calls only.
[[noreturn]] void become_program(const ChildPlan& plan, const SignalInbox& signals,
                                 const BlockSignals& blocked) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.launcher)
    ::_exit(1);  // it died before the line above: no signal will come
  ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  ::dup2(plan.standard_output, STDOUT_FILENO);
  ::dup2(plan.standard_error, STDERR_FILENO);
  signals.restore();
  blocked.unblock();
  ::execvpe(plan.arguments[0], plan.arguments.data(), plan.environment.data());
  const int reason = errno;
  [[maybe_unused]] const ssize_t ignored = ::write(plan.could_not_execute, &reason, sizeof reason);
  ::_exit(127);
}

// The child's end of the pipe closes when a program is executed; before that, it tells why none
// could be.
int reason_not_to_execute(Pipe& status) {
  status.write_end.close();
  int reason = 0;
  while (::read(status.read_end.get(), &reason, sizeof reason) < 0 && errno == EINTR) {
  }
  return reason;
}

}  // namespace

Environment place_of_rank(const LaunchOptions& options, const MeetingPoint& point, int local_rank) {
  const std::string node_rank = std::to_string(options.node_rank);
  return {{"MASTER_ADDR", point.address},
          {"MASTER_PORT", std::to_string(point.port)},
          {"RINGSIDE_JOB_KEY", point.job_key},
          {"RANK", std::to_string(options.node_rank * options.ranks + local_rank)},
          {"WORLD_SIZE", std::to_string(options.nodes * options.ranks)},
          {"LOCAL_RANK", std::to_string(local_rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(options.ranks)},
          {"NODE_RANK", node_rank},
          {"GROUP_RANK", node_rank},
          {"TORCHELASTIC_USE_AGENT_STORE",
           "False"}};  // MASTER_PORT is free for rank 0: no agent of torchrun's sits on it
}

RankProcess start_rank(std::vector<std::string> command, const Environment& place, bool own_output,
                       const SignalInbox& signals) {
  auto environment = environment_with(place);
  Pipe output = make_pipe();
  Pipe errors = make_pipe();
  Pipe status = make_pipe();
  const ChildPlan plan{.arguments = pointers(command),
                       .environment = pointers(environment),
                       .launcher = ::getpid(),
                       .standard_output = own_output ? STDOUT_FILENO : output.write_end.get(),
                       .standard_error = own_output ? STDERR_FILENO : errors.write_end.get(),
                       .could_not_execute = status.write_end.get()};
  RankProcess process;
  process.rank = std::stoi(place.at("RANK"));
  {
    const BlockSignals blocked;
    process.pid = ::fork();
    if (process.pid == 0) become_program(plan, signals, blocked);
  }
  require(process.pid > 0, "cannot start a process for rank {}: {}", process.rank,
          std::strerror(errno));
  ::setpgid(process.pid, process.pid);  // here as well as in the child: whoever comes first, from
                                        // now on the group exists
  const int reason = reason_not_to_execute(status);
  if (reason != 0) {
    ::waitpid(process.pid, nullptr, 0);
    fail("cannot execute {}: {}", command.front(), std::strerror(reason));
  }
  if (!own_output) {
    make_non_blocking(output.read_end);
    make_non_blocking(errors.read_end);
    process.standard_output = std::move(output.read_end);
    process.standard_error = std::move(errors.read_end);
  }
  return process;
}

std::string name_of_signal(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

std::string in_words(const siginfo_t& end) {
  if (end.si_code == CLD_EXITED) return fmt::format("ended with exit code {}", end.si_status);
  return fmt::format("was killed by signal {} ({})", end.si_status, name_of_signal(end.si_status));
}

int exit_code_of(const siginfo_t& end) {
  return end.si_code == CLD_EXITED ? end.si_status : 128 + end.si_status;
}

}  // namespace ringside::cli
