// Whether there is enough memory, asked before any is: for commands that use a model on one rank.
#pragma once

#include <optional>

#include <CLI/CLI.hpp>

#include "transformer/memory.hpp"

namespace ringside::cli {

// --memory-limit GB, in 10^9 bytes. 0: begin in any case; nothing said: what the system has.
void add_memory_limit(CLI::App& command, std::optional<double>& gigabytes);

// Throws Error, with what is needed and what there is, and `advice`, if it is too little.
void require_memory(const transformer::MemoryNeed& need, std::optional<double> limit_gigabytes, const char* advice);

}  // namespace ringside::cli
