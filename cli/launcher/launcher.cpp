#include "cli/launcher/launcher.hpp"

#include <cstdio>

#include <fcntl.h>

#include <fmt/format.h>

#include "base/warn.hpp"
#include "cli/launcher/job.hpp"

namespace ringside::cli {
namespace {

// If this process was started with descriptor 0, 1 or 2 closed, its first pipe would get that
// number and be mistaken for its output.
void fill_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
  }
}

}  // namespace

int launch(const LaunchOptions& options) {
  fill_standard_streams();
  LaunchOptions now = options;
  for (int restart = 1;; ++restart) {
    Job job(now);
    const int code = job.run();
    if (code == 0 || job.was_stopped() || restart > options.restarts) return code;
    warn("starting all ranks again ({} of {})", restart, options.restarts);
    if (options.command_again) now.command = options.command_again();
  }
}

}  // namespace ringside::cli
