// One rank of a job as a child process of the launcher: how it starts, and a description of its
// end.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <sys/types.h>
#include <sys/wait.h>

#include "cli/launcher/launcher.hpp"
#include "cli/launcher/processes/pipe.hpp"
#include "cli/launcher/processes/signal_pipe.hpp"
#include "cli/launcher/rendezvous_address.hpp"

namespace ringside::cli {

using Environment = std::map<std::string, std::string>;

// The environment variables of a rank: torchrun's names and the job key.
Environment rank_environment(const LaunchOptions& options, const RendezvousAddress& rendezvous,
                             int local_rank);

struct RankProcess {
  int rank = 0;
  pid_t pid = -1;  // also the number of its process group

  // Read its output here, without blocking. Not open if the rank writes to the launcher's own.
  FileDescriptor standard_output;
  FileDescriptor standard_error;
};

// Starts `command` in a process group of its own, with `variables` added to this process's
// environment, and returns when the program runs. It reads from /dev/null, and the kernel kills it
// when the calling thread ends. It inherits the descriptor `inherited`, unless that is -1. Throws
// Error if the program cannot be executed.
RankProcess start_rank(std::vector<std::string> command, const Environment& variables,
                       bool own_output, const SignalPipe& signals, int inherited);

// The arguments of exec(3): pointers into `texts`, then a null pointer.
std::vector<char*> exec_arguments(std::vector<std::string>& texts);

// Whether a child process is on its way out, or dead already. The kernel says so before it closes
// the process's connections; only later can its end be waited for.
bool is_dying(pid_t pid);

// Whether SIGSTOP has stopped a process. A debugger that holds it does not count.
bool is_stopped(pid_t pid);

// How a process ended: "was killed by signal 9 (SIGKILL)", "ended with exit code 3".
std::string in_words(const siginfo_t& end);
std::string name_of_signal(int signal);
bool was_killed(const siginfo_t& end);   // by a signal
int exit_code_of(const siginfo_t& end);  // as a shell reports it

}  // namespace ringside::cli
