// The command that continues an interrupted run.
#pragma once

#include <string>
#include <vector>

#include "cli/options/options.hpp"

namespace ringside::cli {

// For a shell: the `ringside train` that was given, but it resumes from `folder`. The options that
// the checkpoint brings with it are left out: "ringside train --resume model/ -n 4 --data notes/".
// So is --stop-at, if the run has stopped there.
std::string command_to_resume(const std::vector<GivenOption>& given, const std::string& folder,
                              bool stopped);

}  // namespace ringside::cli
