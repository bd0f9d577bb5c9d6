// The launcher starts the ranks of a job on this machine, forwards their output, and ends them all.
//
// Each rank gets torchrun's environment variables: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
// NODE_RANK (also as GROUP_RANK), MASTER_ADDR and MASTER_PORT. RINGSIDE_JOB_KEY holds the secret
// with which the ranks authenticate each other.
//
// Each rank leads its own process group, reads from /dev/null, and writes into pipes. The launcher
// forwards the pipes line by line, so lines of different ranks never mix. When the first rank
// fails, the launcher prints which rank and why, gives the others a grace period to print their own
// errors, and then ends them. It forwards interrupts to all ranks. A rank's children end with the
// rank, and everything ends with the launcher, even if the launcher is killed with SIGKILL.
//
// If RINGSIDE_FLIGHT_DIR is unset, failing ranks write their flight records to a temporary folder
// of the job, and the launcher's last line names it. The launcher leaves no folder after a job that
// ends well or is interrupted.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"

namespace ringside::collectives {
class JobMembers;
}

namespace ringside::cli {

struct LaunchOptions {
  std::vector<std::string> command;  // the program, found through PATH, and its arguments
  int ranks = 1;                     // on this machine; every other machine starts as many
  int nodes = 1;
  int node_rank = 0;

  // Where rank 0 listens. Without one: 127.0.0.1, which is enough for one node.
  std::optional<std::string> master_address;
  // Without one: a free port, reserved for the job (one node only).
  std::optional<int> master_port;
  // Without one: RINGSIDE_JOB_KEY if set, else 128 random bits (one node only).
  std::optional<std::string> job_key;

  // Every line of rank 2 is printed as "[2] ...". Bare: rank 0 inherits stdout and stderr (a
  // terminal stays a terminal), and only the lines of the others have a prefix.
  bool rank_0_bare = false;
  Seconds grace{5};
  // From a signal to the launcher until it kills the ranks that still run. Without one: `grace`.
  std::optional<Seconds> grace_after_signal = {};

  // If set, the job goes on without a rank that a signal has killed, or that has been stopped for a
  // second (collectives/bootstrap/job_members.hpp).
  std::shared_ptr<collectives::JobMembers> members = {};
  // How often all ranks are started again after a failure, with command_again() if it is set.
  int restarts = 0;
  std::function<std::vector<std::string>()> command_again = {};

  // What stands behind the number of a rank that fails: its coordinates in a mesh. Empty: nothing.
  std::function<std::string(int rank)> place = {};
};

// Runs the job to its end and returns the exit code: 0 if every rank exited with 0, else the code
// of the first rank that failed, or 128 + n if signal n ended that rank or the launcher. Failures
// have then been printed on stderr. Throws Error if the job cannot start: the program does not
// exist, or the options contradict each other.
int launch(const LaunchOptions& options);

}  // namespace ringside::cli
