// The other programs that `ringside` runs (program.hpp). They stand in its folder.
#pragma once

#include <string>
#include <string_view>

#include "cli/options/cli11_names.hpp"
#include "cli/program/reference.hpp"

namespace ringside::cli {

// If another program has this command, replaces this process by it, with the same arguments. Throws
// Error with the target to build if that program is not there.
void become_program_with(std::string_view command);

// Replaces this process by the Python package, with the same arguments: for a command of this
// program that leaves a part of its work to Python.
[[noreturn]] void become_python(std::string_view command);

// A command that another program has, as that program's own help tells it. Where the program is not
// built, or does not tell it, the description says what to build.
CommandText command_of(const std::string& program, const std::string& command);

// Writes the first line of each such command into the list of `ringside`'s commands, for its help.
void describe_other_commands(CLI::App& ringside);

}  // namespace ringside::cli
