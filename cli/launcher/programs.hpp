// The programs beside this one: others of this build or installation, and the Python package.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ringside::cli {

std::filesystem::path folder_of_programs();

// The words that start a program: one beside this one, or, for "python", Python with the package of
// this build or installation.
std::vector<std::string> start_of(const std::string& program);

// The same as a command line for a shell.
std::string shell_start_of(const std::string& program);

// What a command line writes to standard output. Throws Error if it cannot be run.
std::string output_of(const std::string& command);

}  // namespace ringside::cli
