#include "collectives/diagnostics/resources.hpp"

#include <cerrno>
#include <fstream>

#include <sys/resource.h>

#include "base/error.hpp"

namespace ringside::collectives {

void check_open_files(int error, const std::string& who) {
  if (error == EMFILE) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    fail(
        "{} may not have more than {} files and connections open, and needs up to two connections "
        "to every other rank and a few files: raise the limit (ulimit -n 4096), or use fewer ranks",
        who, limit.rlim_cur);
  }
  require(error != ENFILE,
          "the host of {} has no file descriptors left for any process: raise fs.file-max (sysctl)",
          who);
}

std::string no_free_port(const std::string& who) {
  std::string low = "?", high = "?";
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
  return fmt::format(
      "{} found no free port on its host: those from {} to {} are taken, or kept for a minute "
      "after their connection has ended. Wait, or widen the range (sysctl "
      "net.ipv4.ip_local_port_range)",
      who, low, high);
}

}  // namespace ringside::collectives
