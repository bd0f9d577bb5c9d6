// A helper process that ends the ranks if the launcher is killed.
//
// The kernel kills a rank with its launcher (PR_SET_PDEATHSIG), but not what the rank has started:
// for example, the Python under a shell script. The reaper keeps a list of the process groups of
// all ranks, and reads a pipe of which only the launcher holds the write end. When the launcher
// ends, for whatever reason, the pipe ends too: the reaper kills the groups on its list and exits.
// If there were any, the launcher was killed: then the reaper also removes the folder of the flight
// records, of which nobody will hear.
#pragma once

#include <string>

#include <sys/types.h>

#include "cli/launcher/processes/pipe.hpp"

namespace ringside::cli {

class OrphanReaper {
 public:
  // `flights`: that folder; empty: none.
  OrphanReaper(int ranks, const std::string& flights);
  ~OrphanReaper();  // ends the helper process, which first kills every group still on its list
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

  void add(pid_t group);

  // Call before you reap the group's leader: afterwards the kernel may reuse the number.
  void remove(pid_t group);

 private:
  void send(pid_t message) const;  // a group to add, or minus a group to remove

  FileDescriptor pipe_;
  pid_t pid_ = -1;
};

}  // namespace ringside::cli
