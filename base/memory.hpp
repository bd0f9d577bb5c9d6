// How much memory a program may still ask for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ringside {

// Bytes that can be had without pushing anything out to swap: what the kernel calls MemAvailable,
// or what is left to this process's control group (a container, a batch job) where that is less.
// Nothing where the system does not say. `root` is "/" but for tests.
std::optional<std::uint64_t> available_memory(const std::filesystem::path& root = "/");

// The most that this process ever had in memory at once, in bytes, since its start or the last
// reset: what the kernel calls VmHWM. Nothing where the system does not say.
std::optional<std::uint64_t> peak_resident_memory(const std::filesystem::path& root = "/");
void reset_peak_resident_memory();  // to what it has now; nothing happens where the system does not
                                    // allow it

}  // namespace ringside
