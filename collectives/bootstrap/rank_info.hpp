// A rank's number in its job, and how it finds the others, as the launcher put it into the
// environment.
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
  bool one_host = true;                      // no rank runs on another host
  std::string master_address = "127.0.0.1";  // where rank 0 listens
  std::uint16_t master_port = 29500;
  int listening = -1;  // a socket at this port that rank 0 has inherited, or -1
  // The network interface at which the others reach this rank; empty: the one towards rank 0.
  std::string interface;
  std::string job_key;          // every connection begins with a proof that both sides have it
  std::string backend;          // as the user chose it; all ranks must choose the same
  std::uint32_t costs = 0;      // checksum of its calibration, to compare with the others'
  Seconds connect_timeout{60};  // until all ranks must be connected
};

// Reads torchrun's names: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
// If RANK and WORLD_SIZE are unset, Open MPI's (OMPI_COMM_WORLD_RANK, ...), then Slurm's
// (SLURM_PROCID, ...), where srun started this process; if none is set, a world of one rank. A
// launcher that does not set MASTER_ADDR and MASTER_PORT leaves them to the job: the first host of
// Slurm's node list, or 127.0.0.1 for a job on one host, and a port derived from the id of the job
// and its step. RINGSIDE_JOB_KEY is the job key (default: the launcher's job id),
// RINGSIDE_INTERFACE the interface, RINGSIDE_CONNECT_TIMEOUT the time to connect in seconds. Where
// the launcher does not say how many ranks are local, a name in MASTER_ADDR means that there may be
// other hosts. Throws Error that names the wrong or missing variable.
RankInfo rank_info_from_environment();

// Where our own launcher has chosen the port, it listens for rank 0, at another port than
// MASTER_PORT: that one is left to programs that listen there themselves, as PyTorch's do. Its
// variable RINGSIDE_LISTENING is "MASTER_PORT:PORT:DESCRIPTOR", and holds where MASTER_PORT is
// still the one that it names. Sets both members of `rank_info`, or leaves them as they are.
void use_port_of_launcher(RankInfo& rank_info);

// Whether a master address means this host on every host: 127.x.x.x, ::1 and localhost do.
bool names_loopback(const std::string& master_address);

// Whether srun started this process as a task. The script of sbatch and the shell of salloc have
// most of Slurm's variables too, but they are not tasks of a step that srun started.
bool started_by_srun();

// A number for the job, of which every message carries a copy (MessageHeader::job). It does not
// reveal the key.
std::uint32_t job_number(const std::string& job_key);

// The first host of a node list in Slurm's notation: of "node[03-07,9],login", "node03". Public for
// its test.
std::string first_host_of(const std::string& node_list);

// How many tasks Slurm runs on node `node`, from its list of numbers: "2(x3),1" has 2 tasks on
// nodes 0 to 2, and 1 on node 3. Public for its test. Throws Error if the list has no such node.
int tasks_of_node(const std::string& tasks_per_node, int node);

}  // namespace ringside::collectives
