// One rank of a job as a child process of the launcher: how it is started, and how its end is told.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <sys/types.h>
#include <sys/wait.h>

#include "cli/launcher/file_descriptor.hpp"
#include "cli/launcher/launcher.hpp"
#include "cli/launcher/meeting_point.hpp"
#include "cli/launcher/signal_inbox.hpp"

namespace ringside::cli {

using Environment = std::map<std::string, std::string>;

// The variables by which a rank finds its place, torchrun's names and the job key.
Environment place_of_rank(const LaunchOptions& options, const MeetingPoint& point, int local_rank);

struct RankProcess {
  int rank = 0;
  pid_t pid = -1;                  // also the number of its process group
  FileDescriptor standard_output;  // what it writes can be read here without blocking; not open if
                                   // it has our own
  FileDescriptor standard_error;
};

// Starts `command` in a process group of its own with `place` added to our environment, and returns
// when its program runs. It reads /dev/null, and is killed when the calling thread ends. Throws
// Error if the program cannot be executed.
RankProcess start_rank(std::vector<std::string> command, const Environment& place, bool own_output,
                       const SignalInbox& signals);

// How a process ended: "was killed by signal 9 (SIGKILL)", "ended with exit code 3"; and the code
// that a shell would make of it.
std::string in_words(const siginfo_t& end);
std::string name_of_signal(int signal);
int exit_code_of(const siginfo_t& end);

}  // namespace ringside::cli
