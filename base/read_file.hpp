// Whole files, of any kind that has an end: regular ones, pipes, and those in /proc.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ringside {

// All bytes. Throws Error "cannot read PATH: No such file or directory", or with `what` "the
// schedule in" "cannot read the schedule in PATH: ...".
std::string read_file(const std::filesystem::path& path, std::string_view what = "");

// All bytes; none where they cannot be read, and errno is the reason.
std::optional<std::string> read_if_possible(const std::filesystem::path& path);

}  // namespace ringside
