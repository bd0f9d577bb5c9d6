#include "collectives/bootstrap/host_identity.hpp"

#include <fstream>

#include <sys/stat.h>

#include "base/random.hpp"

namespace ringside::collectives {

HostIdentity host_identity() {
  HostIdentity host;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), host.boot_id);
  struct stat status {};
  if (::stat("/proc/self/ns/pid", &status) == 0) host.pid_namespace = status.st_ino;
  return host;
}

std::uint64_t hash_of(const HostIdentity& host) {
  std::uint64_t hash = 0;
  for (const char c : host.boot_id) hash = mix_bits(hash + static_cast<unsigned char>(c) + 1);
  return hash ^ mix_bits(host.pid_namespace);
}

}  // namespace ringside::collectives
