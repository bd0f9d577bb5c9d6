// How much memory the process may still allocate, and how much it has used.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ringside {

// Bytes that can be allocated without swapping: the kernel's MemAvailable, or what is left in this
// process's control group (a container, a batch job) if that is less. nullopt if the system does
// not tell. Tests pass another `root`.
std::optional<std::uint64_t> available_memory(const std::filesystem::path& root = "/");

// The peak resident memory of this process in bytes, since its start or the last reset: the
// kernel's VmHWM. nullopt if the system does not tell.
std::optional<std::uint64_t> peak_resident_memory(const std::filesystem::path& root = "/");
// Sets the peak to the current value. Does nothing if the system does not allow it.
void reset_peak_resident_memory();

}  // namespace ringside
