#include "cli/launcher/processes/rank_process.hpp"

#include "base/read_file.hpp"
#include "base/system/block_signals.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <sstream>

#include <sys/prctl.h>

namespace ringside::cli {
namespace {

// This process's environment, overridden by `variables`, as "NAME=value".
std::vector<std::string> environment_with(const Environment& variables) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!variables.contains(text.substr(0, text.find('=')))) result.push_back(text);
  }
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

// What a forked child needs. The parent makes it before the fork, because the child must not
// allocate between fork and exec.
struct ChildSetup {
  std::vector<char*> arguments;
  std::vector<char*> environment;
  pid_t launcher;
  int standard_output;
  int standard_error;
  int inherited;  // a descriptor that the program gets too, or -1
  int status;     // the child writes errno here if exec fails
};

// Runs in the child. Async-signal-safe calls only.
[[noreturn]] void become_program(const ChildSetup& setup, const SignalPipe& signals,
                                 const BlockSignals& blocked) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // If the launcher died before the line above, no signal will come.
  if (::getppid() != setup.launcher) ::_exit(1);
  ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  ::dup2(setup.standard_output, STDOUT_FILENO);
  ::dup2(setup.standard_error, STDERR_FILENO);
  if (setup.inherited >= 0) ::fcntl(setup.inherited, F_SETFD, 0);
  signals.restore();
  blocked.unblock();
  ::execvpe(setup.arguments[0], setup.arguments.data(), setup.environment.data());
  const int reason = errno;
  [[maybe_unused]] const ssize_t ignored = ::write(setup.status, &reason, sizeof reason);
  ::_exit(127);
}

// The errno of a failed exec, or 0: a successful exec closes the child's end of the pipe.
int error_of_exec(Pipe& status) {
  status.write_end.close();
  int error = 0;
  while (::read(status.read_end.get(), &error, sizeof error) < 0 && errno == EINTR) {
  }
  return error;
}

}  // namespace

std::vector<char*> exec_arguments(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

Environment rank_environment(const LaunchOptions& options, const RendezvousAddress& rendezvous,
                             int local_rank) {
  const std::string node_rank = std::to_string(options.node_rank);
  return {
      {"MASTER_ADDR", rendezvous.address},
      {"MASTER_PORT", std::to_string(rendezvous.port)},
      {"RINGSIDE_JOB_KEY", rendezvous.job_key},
      {"RINGSIDE_LISTENING", rendezvous.listening ? fmt::format("{}:{}:{}", rendezvous.port,
                                                                rendezvous.listening->number(),
                                                                rendezvous.listening->descriptor())
                                                  : ""},
      {"RANK", std::to_string(options.node_rank * options.ranks + local_rank)},
      {"WORLD_SIZE", std::to_string(options.nodes * options.ranks)},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(options.ranks)},
      {"NODE_RANK", node_rank},
      {"GROUP_RANK", node_rank},
      // MASTER_PORT is free for rank 0: no agent of torchrun listens there.
      {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
}

RankProcess start_rank(std::vector<std::string> command, const Environment& variables,
                       bool own_output, const SignalPipe& signals, int inherited) {
  auto environment = environment_with(variables);
  Pipe output = make_pipe();
  Pipe errors = make_pipe();
  Pipe status = make_pipe();
  const ChildSetup setup{.arguments = exec_arguments(command),
                         .environment = exec_arguments(environment),
                         .launcher = ::getpid(),
                         .standard_output = own_output ? STDOUT_FILENO : output.write_end.get(),
                         .standard_error = own_output ? STDERR_FILENO : errors.write_end.get(),
                         .inherited = inherited,
                         .status = status.write_end.get()};
  RankProcess process;
  process.rank = std::stoi(variables.at("RANK"));
  {
    const BlockSignals blocked;  // the child does not run the launcher's handlers
    process.pid = ::fork();
    if (process.pid == 0) become_program(setup, signals, blocked);
  }
  require(process.pid > 0,
          "cannot start a process for rank {}: {}; is a limit on processes (ulimit -u) reached?",
          process.rank, std::strerror(errno));
  // The child does this too. From here on the group exists, whichever process comes first.
  ::setpgid(process.pid, process.pid);
  if (const int error = error_of_exec(status); error != 0) {
    ::waitpid(process.pid, nullptr, 0);
    fail("cannot execute {}: {}", command.front(), std::strerror(error));
  }
  if (!own_output) {
    make_non_blocking(output.read_end);
    make_non_blocking(errors.read_end);
    process.standard_output = std::move(output.read_end);
    process.standard_error = std::move(errors.read_end);
  }
  return process;
}

namespace {

// The fields of /proc/PID/stat behind "PID (NAME) ": "STATE PPID PGRP SESSION TTY TPGID FLAGS ...".
// The name may contain spaces.
std::istringstream fields_of(pid_t pid) {
  const std::string stat = read_if_possible(fmt::format("/proc/{}/stat", pid)).value_or("");
  return std::istringstream(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
}

}  // namespace

bool is_dying(pid_t pid) {
  constexpr unsigned long exiting = 0x4;  // PF_EXITING in Linux's sched.h
  std::istringstream fields = fields_of(pid);
  std::string ignored;
  unsigned long flags = 0;
  for (int i = 0; i < 6; ++i) fields >> ignored;
  fields >> flags;
  return (flags & exiting) != 0;
}

bool is_stopped(pid_t pid) {
  std::string state;
  fields_of(pid) >> state;
  return state == "T";
}

std::string name_of_signal(int signal) {
  // The numbers of x86-64 and Arm. sigabbrev_np() is newer than the glibc that a wheel needs.
  constexpr std::array names = {"HUP",  "INT",    "QUIT", "ILL",   "TRAP", "ABRT", "BUS",  "FPE",
                                "KILL", "USR1",   "SEGV", "USR2",  "PIPE", "ALRM", "TERM", "STKFLT",
                                "CHLD", "CONT",   "STOP", "TSTP",  "TTIN", "TTOU", "URG",  "XCPU",
                                "XFSZ", "VTALRM", "PROF", "WINCH", "POLL", "PWR",  "SYS"};
  if (signal < 1 || signal > std::ssize(names)) return fmt::format("signal {}", signal);
  return fmt::format("SIG{}", names[static_cast<std::size_t>(signal - 1)]);
}

std::string in_words(const siginfo_t& end) {
  if (!was_killed(end)) return fmt::format("ended with exit code {}", end.si_status);
  return fmt::format("was killed by signal {} ({})", end.si_status, name_of_signal(end.si_status));
}

bool was_killed(const siginfo_t& end) {
  return end.si_code != CLD_EXITED;
}

int exit_code_of(const siginfo_t& end) {
  return was_killed(end) ? 128 + end.si_status : end.si_status;
}

}  // namespace ringside::cli
