#include "cli/launcher/library_environment.hpp"

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

void set_environment_of_libraries(const std::string& blas_kernel) {
  const bool threads_spin = !environment("OMP_WAIT_POLICY") && !environment("GOMP_SPINCOUNT");
  if ((!threads_spin && blas_kernel.empty()) || is_debugged()) return;
  if (threads_spin) {
    ::setenv("OMP_WAIT_POLICY", "passive", 1);
    // Products use our own threads. OpenBLAS would start some for each rank when it is loaded, and
    // end the process where a limit (ulimit -u) does not allow them.
    ::setenv("OPENBLAS_NUM_THREADS", "1", 0);
  }
  if (!blas_kernel.empty()) ::setenv("OPENBLAS_CORETYPE", blas_kernel.c_str(), 1);
  std::vector<std::string> command = own_command();
  ::execv(command.front().c_str(), exec_arguments(command).data());
}

}  // namespace ringside::cli
