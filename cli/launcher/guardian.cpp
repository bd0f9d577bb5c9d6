#include "cli/launcher/guardian.hpp"

#include <algorithm>
#include <csignal>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>

namespace ringside::cli {
namespace {

// Runs in the guardian, a fork of a process that may have had threads: no allocation from here on,
// `groups` has room for all.
[[noreturn]] void guard(int pipe, std::vector<pid_t>& groups) {
  ::setpgid(0, 0);  // Ctrl-C at the terminal is for the launcher
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);
  ::prctl(PR_SET_NAME, "ringside-guard");
  pid_t message = 0;
  for (;;) {
    const ssize_t got = ::read(pipe, &message, sizeof message);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof message) break;
    if (message > 0) {
      groups.push_back(message);
    } else {
      groups.erase(std::remove(groups.begin(), groups.end(), -message), groups.end());
    }
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  ::_exit(0);
}

// The guardian must not hold the launcher's terminal or pipes open.
void let_go_of_standard_streams() {
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2; ++fd) ::dup2(nowhere, fd);
  if (nowhere > 2) ::close(nowhere);
}

}  // namespace

Guardian::Guardian(int ranks) {
  auto [read_end, write_end] = make_pipe();
  std::vector<pid_t> groups;
  groups.reserve(static_cast<std::size_t>(ranks));
  pid_ = ::fork();
  require(pid_ >= 0, "cannot start a process: {}", std::strerror(errno));
  if (pid_ == 0) {
    write_end.close();
    let_go_of_standard_streams();
    guard(read_end.get(), groups);
  }
  pipe_ = std::move(write_end);
}

Guardian::~Guardian() {
  pipe_.close();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::watch(pid_t group) {
  tell(group);
}
void Guardian::forget(pid_t group) {
  tell(-group);
}

void Guardian::tell(pid_t message) const {
  while (::write(pipe_.get(), &message, sizeof message) < 0 && errno == EINTR) {
  }
}

}  // namespace ringside::cli
