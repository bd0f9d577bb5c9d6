// The ranks of jobs that run on this machine, by their environment in /proc. Only those of this
// user can be read.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace ringside::cli {

struct RunningRank {
  int rank = 0;
  int size = 1;
  pid_t pid = -1;
  std::string job;            // the same for all ranks of a job, and for no other
  std::string flight_folder;  // where it writes its flight records
  std::string command = {};   // its command line
  bool stopped = false;       // by SIGSTOP, or by a debugger
  bool can_write = false;     // it writes its flight records when it receives SIGUSR1
};

// In the order of jobs and ranks. Of the processes of one rank, a program that has made its process
// group counts most, then the first.
std::vector<RunningRank> running_ranks();

// Whether that process is `ancestor`, or was started by it, perhaps through others. False of init.
bool descends_from(pid_t process, pid_t ancestor);

}  // namespace ringside::cli
