#include "collectives/diagnostics/debugger.hpp"

#include <fstream>
#include <string>

namespace ringside::collectives {

bool has_debugger(std::int64_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string word; status >> word;)
    if (word == "TracerPid:") {
      std::int64_t tracer = 0;
      return status >> tracer && tracer != 0;
    }
  return false;
}

}  // namespace ringside::collectives
