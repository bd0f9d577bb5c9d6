// The main function of both programs. `ringside` has the commands of a student; for those of
// ringside-bench and of the Python package it runs these, as git does: users type
// `ringside COMMAND`, whichever program has the command.
//
// add_commands() (cli/options/command.hpp) and program_of() are each program's own:
// ringside_program() in cmake/RingsidePrograms.cmake writes them from the list of its commands,
// into a source that calls the functions below.
#pragma once

#include <string>
#include <string_view>

#include "cli/options/cli11_names.hpp"

namespace ringside::cli {

// The program that `ringside` runs for one of its commands: "ringside-bench", or "python" for
// the Python package. "" for a command of this program, and for what is no command.
std::string program_of(std::string_view command);

// Adds a command that another program has.
void add_other_command(CLI::App& ringside, const char* name);

// What stands below the options in the help of a subcommand.
void set_notes(CLI::App& app, const char* subcommand, const char* notes);

// Runs the command that the arguments name, or becomes the program that has it. Returns the exit
// code.
int run_program(int argc, char** argv);

}  // namespace ringside::cli
