#include "cli/launcher/processes/orphan_reaper.hpp"

#include <algorithm>
#include <csignal>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>

namespace ringside::cli {
namespace {

// A rank that is killed in the middle of a write ends when that is done. For at most a second.
void wait_for_end_of(const std::vector<pid_t>& groups) {
  for (int tries = 0; tries < 100; ++tries) {
    const bool all_gone =
        std::ranges::all_of(groups, [](pid_t group) { return ::kill(-group, 0) != 0; });
    if (all_gone) return;
    ::usleep(10'000);
  }
}

// The helper process. The parent may have had threads when it forked, so this must not allocate:
// `groups` has room for every rank.
[[noreturn]] void run_reaper(int pipe, std::vector<pid_t>& groups, const char* flights) {
  ::setpgid(0, 0);  // Ctrl-C at the terminal is for the launcher
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);
  ::prctl(PR_SET_NAME, "ringside-reaper");
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
  if (!groups.empty() && *flights != '\0') {
    wait_for_end_of(groups);
    ::execl("/bin/rm", "rm", "-rf", "--", flights, static_cast<char*>(nullptr));
  }
  ::_exit(0);
}

// The reaper must not hold the launcher's terminal or pipes open.
void redirect_standard_streams() {
  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2; ++fd) ::dup2(null, fd);
  if (null > 2) ::close(null);
}

}  // namespace

OrphanReaper::OrphanReaper(int ranks, const std::string& flights) {
  auto [read_end, write_end] = make_pipe();
  std::vector<pid_t> groups;
  groups.reserve(static_cast<std::size_t>(ranks));
  pid_ = ::fork();
  require(pid_ >= 0, "cannot start a process: {}; is a limit on processes (ulimit -u) reached?",
          std::strerror(errno));
  if (pid_ == 0) {
    write_end.close();
    redirect_standard_streams();
    run_reaper(read_end.get(), groups, flights.c_str());
  }
  pipe_ = std::move(write_end);
}

OrphanReaper::~OrphanReaper() {
  pipe_.close();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void OrphanReaper::add(pid_t group) {
  send(group);
}

void OrphanReaper::remove(pid_t group) {
  send(-group);
}

void OrphanReaper::send(pid_t message) const {
  while (::write(pipe_.get(), &message, sizeof message) < 0 && errno == EINTR) {
  }
}

}  // namespace ringside::cli
