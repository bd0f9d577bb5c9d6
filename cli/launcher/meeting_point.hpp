// Where the ranks of a job meet (rank 0's address and port), and the key by which they know each
// other.
#pragma once

#include <memory>
#include <string>

#include "cli/launcher/file_descriptor.hpp"
#include "cli/launcher/launcher.hpp"

namespace ringside::cli {

// A free TCP port of 127.0.0.1 for rank 0 to listen on, chosen before rank 0 exists.
//
// Between choosing a port and rank 0's listening on it, another program could take it. So a socket
// stays bound to it for as long as the job runs, with SO_REUSEADDR and without listening: the
// kernel then gives the port neither to a program that asks for any free port nor to an outgoing
// connection, while rank 0, which sets SO_REUSEADDR too (as servers do), can bind it and listen.
class ReservedPort {
 public:
  ReservedPort();
  int number() const { return number_; }

 private:
  FileDescriptor socket_;
  int number_ = 0;
};

struct MeetingPoint {
  std::string address;
  int port = 0;
  std::string job_key;
  std::unique_ptr<ReservedPort> reserved;  // where the port was left to us
};

// Each of the three as the options say; else as MASTER_ADDR, MASTER_PORT and RINGSIDE_JOB_KEY say,
// unless they are those of an outer job (RANK is set); else, for a job on one node, chosen here.
// Throws Error if several nodes would have to guess.
MeetingPoint choose_meeting_point(const LaunchOptions& options);

}  // namespace ringside::cli
