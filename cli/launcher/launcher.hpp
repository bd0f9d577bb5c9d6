// The launcher: starts the ranks of a job on this machine, passes on what they say, and leaves none
// behind.
//
// Every rank finds its place in torchrun's environment variables: RANK, WORLD_SIZE, LOCAL_RANK,
// LOCAL_WORLD_SIZE, NODE_RANK (also as GROUP_RANK), MASTER_ADDR, MASTER_PORT; and in
// RINGSIDE_JOB_KEY the key that its connections are checked against.
//
// Each rank leads a process group of its own, reads /dev/null, and writes into pipes that the
// launcher forwards line by line: lines of different ranks never mix. When the first rank fails,
// the launcher says which and why, leaves the others a grace period in which to say their own
// sentence, and then ends them. An interrupt goes to all ranks. Whatever a rank has started in its
// group ends with it, and everything ends with the launcher, even if it is killed with SIGKILL.
//
// Where RINGSIDE_FLIGHT_DIR is unset, ranks that fail leave their flight records in a temporary
// folder of the job, and the launcher's last line names it. After a job that ends well, or is
// interrupted, no folder is left.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"

namespace ringside::cli {

enum class RankOutput {
  prefixed,     // every line of rank 2 is written as "[2] ..."
  rank_0_bare,  // rank 0 has the launcher's own stdout and stderr (a terminal stays a terminal);
                // the others are prefixed
};

struct LaunchOptions {
  std::vector<std::string> command;  // the program, found through PATH, and its arguments
  int ranks = 1;  // on this machine; the same number on every other machine of the job
  int nodes = 1;
  int node_rank = 0;
  std::optional<std::string>
      master_address;  // where rank 0 listens; none: 127.0.0.1, which is enough for one node
  std::optional<int> master_port;  // none: a free port, held for the job (one node only)
  std::optional<std::string>
      job_key;  // none: RINGSIDE_JOB_KEY if set, else 128 random bits (one node only)
  RankOutput output = RankOutput::prefixed;
  Seconds grace{5};
};

// Runs the job to its end and returns the exit code for the launcher: 0 if every rank ended with 0,
// the first failing rank's code, 128 + n if that rank, or the launcher itself, was ended by signal
// n. What went wrong has then been said on stderr. Throws Error where no job can be started: no
// such program, options that make no sense.
int launch(const LaunchOptions& options);

}  // namespace ringside::cli
