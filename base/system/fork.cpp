#include "base/system/fork.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"

namespace ringside {
namespace {

// Which file a descriptor refers to. A number may be closed and used again without our knowledge:
// Boost.Asio closes its own.
using Identity = std::pair<dev_t, ino_t>;

Identity identity_of(int descriptor) {
  struct stat file {};
  return ::fstat(descriptor, &file) == 0 ? Identity(file.st_dev, file.st_ino) : Identity();
}

struct Kept {
  std::mutex mutex;  // held during fork(), so that the child finds the table whole
  std::map<int, Identity> descriptors;
  std::atomic<pid_t> process = ::getpid();
};

void replace_in_child();

// Never destroyed: a program may fork at its end.
Kept& kept() {
  static Kept& all = []() -> Kept& {
    ::pthread_atfork([] { kept().mutex.lock(); }, [] { kept().mutex.unlock(); }, replace_in_child);
    return *new Kept;
  }();
  return all;
}

// Allocates nothing. The one descriptor that it opens for a moment may have a kept number only if
// that is closed, and then it is another file.
void replace_in_child() {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const auto& [descriptor, identity] : kept().descriptors)
    if (identity_of(descriptor) == identity && ::dup3(nothing, descriptor, O_CLOEXEC) < 0)
      ::close(descriptor);
  if (nothing >= 0) ::close(nothing);
  kept().process = ::getpid();
  kept().mutex.unlock();
}

}  // namespace

void keep_from_children(int descriptor) {
  const Identity identity = identity_of(descriptor);
  if (identity == Identity()) return;  // not open
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  const std::lock_guard lock(kept().mutex);
  kept().descriptors[descriptor] = identity;
}

OwnerProcess::OwnerProcess() : process_(kept().process) {}

bool OwnerProcess::is_this() const {
  return kept().process == process_;
}

void OwnerProcess::require_this() const {
  if (is_this()) return;
  fail(
      "process {} made this group, and process {} is its child, which has neither the threads nor "
      "the connections of the group: call it in process {}, or make a group in the child",
      process_, ::getpid(), process_);
}

}  // namespace ringside
