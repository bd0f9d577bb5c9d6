#include "collectives/bootstrap/rank_location.hpp"

#include <fstream>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

#include "base/random.hpp"

namespace ringside::collectives {

RankLocation location_of_this_process(std::string_view gpu) {
  RankLocation here;
  ::gethostname(here.host, sizeof here.host - 1);
  gpu.copy(here.gpu, sizeof here.gpu - 1);
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id);
  here.boot = hash_of_text(boot_id);
  struct stat status {};
  ::stat("/proc/self/ns/pid", &status);
  here.proc_domain = here.boot ^ mix_bits(status.st_ino);
  here.process = ::getpid();
  return here;
}

bool on_one_host(const RankLocation& a, const RankLocation& b) {
  return a.boot == b.boot;
}

bool on_one_gpu(const RankLocation& a, const RankLocation& b) {
  return on_one_host(a, b) && std::string_view(a.gpu) == b.gpu;
}

bool in_one_process(const RankLocation& a, const RankLocation& b) {
  return know_their_process_ids(a, b) && a.process == b.process;
}

bool know_their_process_ids(const RankLocation& a, const RankLocation& b) {
  return a.proc_domain == b.proc_domain;
}

}  // namespace ringside::collectives
