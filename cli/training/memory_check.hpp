// Whether there is enough memory, asked before any is taken.
#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "transformer/memory.hpp"

namespace ringside::cli {

// --memory-limit GB, in 10^9 bytes, for all ranks on this machine. 0: begin in any case; nothing
// said: what the system has.
CLI::Option* add_memory_limit(CLI::App& command, std::optional<double>& gigabytes);

// Throws Error, with what is needed and what there is, and `advice`, if it is too little for so
// many ranks on this machine. On a GPU it is the memory of this rank's that counts, and how many
// ranks share it; asking takes some of it, so a launcher should not.
void require_memory(const transformer::MemoryNeed& of_a_rank, int ranks_here,
                    std::optional<double> limit_gigabytes, const std::string& advice,
                    autograd::Device device = autograd::Device::cpu);

}  // namespace ringside::cli
