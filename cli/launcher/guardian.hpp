// The guardian: a small process beside the launcher that outlives it, should it be killed, by just
// long enough to end the ranks.
//
// A rank dies with the launcher by itself (PR_SET_PDEATHSIG), but what the rank has started would
// not: the python under a shell script, say. The guardian knows the process groups of all ranks and
// reads a pipe whose other end only the launcher holds. When the launcher is gone, in whatever way,
// the pipe ends; the groups that are still on the list are killed, and the guardian exits.
#pragma once

#include <sys/types.h>

#include "cli/launcher/file_descriptor.hpp"

namespace ringside::cli {

class Guardian {
 public:
  explicit Guardian(int ranks);
  ~Guardian();  // ends the guardian, and with it every group still on its list
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  void watch(pid_t group);
  void forget(pid_t group);  // call before the group's leader is reaped: afterwards its number may
                             // be somebody else's

 private:
  void tell(pid_t message) const;

  FileDescriptor pipe_;
  pid_t pid_ = -1;
};

}  // namespace ringside::cli
