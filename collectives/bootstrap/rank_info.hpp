// A rank's place in its job, as the launcher wrote it into the environment.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.hpp"

namespace ringside::collectives {

struct RankInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this host
  int local_size = 1;
  std::string master_address = "127.0.0.1";  // where rank 0 listens
  std::uint16_t master_port = 29500;
  std::string interface;  // the network interface by which others reach this rank; empty: the one
                          // towards rank 0
  std::string job_key;    // checked on every connection; it keeps jobs apart, it is no protection
                          // against an attacker
  Seconds connect_timeout{60};  // until all ranks must have come
};

// Reads torchrun's names: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
// Where RANK and WORLD_SIZE are unset, Open MPI's (OMPI_COMM_WORLD_RANK, ...) and then Slurm's
// (SLURM_PROCID, ...); where none of them is set, a world of one. MASTER_ADDR and MASTER_PORT,
// where a launcher does not set them, follow from the job: the first host of Slurm's node list,
// 127.0.0.1 for a job on one host, and a port made from the job's id. RINGSIDE_JOB_KEY is the job
// key (otherwise the launcher's job id), and RINGSIDE_INTERFACE the name of the network interface,
// and RINGSIDE_CONNECT_TIMEOUT the seconds of connect_timeout. Throws Error naming the variable
// that is wrong or missing.
RankInfo rank_info_from_environment();

// A number for the job, of which every message carries a copy (MessageHeader::job): the key itself
// is not told.
std::uint32_t job_number(const std::string& job_key);

// The first host of Slurm's notation: "node[03-07,9],login" is "node03". Exposed for its test.
std::string first_host_of(const std::string& node_list);

}  // namespace ringside::collectives
