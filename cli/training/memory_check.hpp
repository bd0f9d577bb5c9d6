// Checks that there is enough memory, before any is allocated.
#pragma once

#include <optional>
#include <string>

#include "cli/cli11_names.hpp"
#include "transformer/memory.hpp"

namespace ringside::cli {

// Declares --memory-limit GB, in 10^9 bytes, for all ranks on this machine. 0: do not check.
// Without it the limit is the available memory.
CLI::Option* add_memory_limit(CLI::App& command, std::optional<double>& gigabytes);

// "25.1 MB (parameters 6.3 MB, gradients 6.3 MB, optimizer 12.5 MB)".
std::string memory_text(const transformer::MemoryNeed& need);

// Throws Error, with the needed and the available memory and `advice`, if so many ranks do not fit
// into this machine's memory. On a GPU, checks the ranks that share this rank's GPU against its
// free memory. The check itself allocates some GPU memory, so a launcher should not call it.
void require_memory(const transformer::MemoryNeed& of_a_rank, int ranks_here,
                    std::optional<double> limit_gigabytes, const std::string& advice,
                    autograd::Device device = autograd::Device::cpu);

}  // namespace ringside::cli
