#include "cli/launcher/idle_threads.hpp"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "base/environment.hpp"
#include "cli/launcher/processes/rank_process.hpp"
#include "cli/launcher/ranks.hpp"

namespace ringside::cli {
namespace {

bool is_debugged() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("TracerPid:")) return line.find_first_of("123456789") != std::string::npos;
  return false;
}

}  // namespace

void let_idle_threads_sleep() {
  if (environment("OMP_WAIT_POLICY") || environment("GOMP_SPINCOUNT") || is_debugged()) return;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  // Products use our own threads. OpenBLAS would start some for each rank when it is loaded, and
  // end the process where a limit (ulimit -u) does not allow them.
  ::setenv("OPENBLAS_NUM_THREADS", "1", 0);
  std::vector<std::string> command = own_command();
  ::execv(command.front().c_str(), exec_arguments(command).data());
}

}  // namespace ringside::cli
