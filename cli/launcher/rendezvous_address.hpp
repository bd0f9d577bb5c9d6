// Where the ranks of a job meet: rank 0's address and port, and the job key that authenticates
// them.
#pragma once

#include <memory>
#include <string>

#include "base/ports/listening_port.hpp"
#include "base/ports/reserved_port.hpp"
#include "cli/launcher/launcher.hpp"

namespace ringside::cli {

struct RendezvousAddress {
  std::string address;
  int port = 0;
  std::string job_key;
  // If the launcher chose the port: MASTER_PORT, for programs that listen there, and the port of
  // Ringside's rank 0, which is closed here once rank 0 has inherited it.
  std::unique_ptr<ReservedPort> reserved;
  std::unique_ptr<ListeningPort> listening;
};

// Takes each of the three from the options; else from MASTER_ADDR, MASTER_PORT and
// RINGSIDE_JOB_KEY, unless they belong to an outer job (RANK is set); else, for a job on one node,
// chooses it. Throws Error if several nodes would have to guess.
RendezvousAddress choose_rendezvous_address(const LaunchOptions& options);

}  // namespace ringside::cli
