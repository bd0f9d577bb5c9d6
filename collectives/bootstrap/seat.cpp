#include "collectives/bootstrap/seat.hpp"

#include <cerrno>
#include <cstring>

#include <unistd.h>

#include "base/error.hpp"
#include "collectives/bootstrap/host_identity.hpp"

namespace ringside::collectives {

Seat seat_of_this_process(std::string_view gpu) {
  Seat seat;
  require(::gethostname(seat.host, sizeof seat.host - 1) == 0, "cannot read this host's name: {}",
          std::strerror(errno));
  gpu.copy(seat.gpu, sizeof seat.gpu - 1);
  const HostIdentity host = host_identity();
  seat.boot = hash_of({host.boot_id, 0});
  seat.pid_namespace = host.pid_namespace;
  seat.process = ::getpid();
  return seat;
}

bool on_one_host(const Seat& a, const Seat& b) {
  return a.boot == b.boot;
}

bool on_one_gpu(const Seat& a, const Seat& b) {
  return on_one_host(a, b) && std::string_view(a.gpu) == b.gpu;
}

bool in_one_process(const Seat& a, const Seat& b) {
  return know_their_process_ids(a, b) && a.process == b.process;
}

bool know_their_process_ids(const Seat& a, const Seat& b) {
  return on_one_host(a, b) && a.pid_namespace == b.pid_namespace;
}

}  // namespace ringside::collectives
