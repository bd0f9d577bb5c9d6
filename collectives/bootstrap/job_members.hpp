// JobMembers: who takes part in a job that goes on without a lost rank, and takes in the process
// that comes in its place.
//
// The launcher tells it what happens to the processes, and polls its descriptors. training/elastic/
// implements it. Without one, a job ends with the first rank that fails.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/system/file_descriptor.hpp"

namespace ringside::collectives {

class JobMembers {
 public:
  virtual ~JobMembers() = default;

  // Rank `number` starts, perhaps in the place of a lost one. Adds to `variables`, its environment.
  // Returns the descriptor that its process inherits; the launcher closes it once the process runs.
  virtual FileDescriptor start(int number, std::map<std::string, std::string>& variables) = 0;

  struct Loss {
    bool ends_job = false;
    bool is_replaced = false;  // the launcher starts another process in its place
    // Follows "rank 2 was killed by signal 9 (SIGKILL); ". Empty: the others have finished.
    std::string consequence;
  };
  virtual Loss lost(int number) = 0;      // a signal has killed its process
  virtual void finished(int number) = 0;  // its process has exited with 0

  virtual std::vector<int> descriptors() const = 0;  // to poll
  // Serves the ranks that have written to them. Returns a rank that keeps the others waiting and
  // does not answer: the launcher kills it.
  virtual std::optional<int> serve() = 0;
  // Why the job cannot go on although ranks are left.
  virtual const std::optional<std::string>& problem() const = 0;
};

}  // namespace ringside::collectives
