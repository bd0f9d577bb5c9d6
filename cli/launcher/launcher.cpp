#include "cli/launcher/launcher.hpp"

#include <climits>
#include <cstdio>

#include <fcntl.h>

#include <fmt/format.h>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "cli/launcher/job.hpp"
#include "collectives/bootstrap/rank_info.hpp"

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

Elastic parse_elastic(const std::string& text) {
  Elastic elastic;
  int end = 0;
  const int read = std::sscanf(text.c_str(), "%d:%d%n", &elastic.smallest, &elastic.largest, &end);
  require(read == 2 && static_cast<std::size_t>(end) == text.size() && elastic.smallest >= 1 &&
              elastic.largest >= elastic.smallest && elastic.largest <= 1024,
          "expected the smallest and the largest number of ranks, such as 2:4, not '{}'", text);
  return elastic;
}

int launch(const LaunchOptions& options) {
  require(!options.elastic || options.nodes == 1,
          "the ranks of an elastic job run on one machine: leave out --elastic or --nnodes");
  const auto tasks = integer_environment("SLURM_NTASKS", 1, INT_MAX).value_or(1);
  require(!options.elastic || tasks == 1 || !collectives::started_by_srun(),
          "--elastic starts its ranks itself, but srun has started {} tasks, each of which would "
          "start a job: take one, srun -n 1",
          tasks);
  fill_standard_streams();
  LaunchOptions now = options;
  const int restarts = options.elastic ? 0 : options.restarts.value_or(0);
  for (int restart = 1;; ++restart) {
    Job job(now);
    const int code = job.run();
    if (code == 0 || job.was_stopped() || restart > restarts) return code;
    fmt::print(stderr, "ringside: starting all ranks again ({} of {})\n", restart, restarts);
    if (options.command_again) now.command = options.command_again();
  }
}

}  // namespace ringside::cli
