// The interface between a program and its commands.
//
// A command NAME is the file commands/NAME.cpp of cli/ or bench/; the end of its help, with
// notes and examples, may be commands/NAME.txt. Its function add_NAME_command(app) declares the
// subcommand with its options and its help, and gives it a callback that does the work. The
// callback returns if everything went well. Otherwise it throws:
//
//   ringside::Error   something failed: main() prints "ringside: ..." and exits with 1
//   UsageError        the arguments are wrong: the same with a hint at --help; exits with 2
//   Exit              the error has been printed already: main() only exits with its code
//
// A subcommand of a command, such as `step mesh`, is commands/step/mesh.cpp (or commands/mesh.cpp)
// with add_step_mesh_command(step); the command itself may then be commands/step/step.cpp.
// The CMakeLists.txt of these folders list all commands.
#pragma once

#include "cli/launcher/exit.hpp"
#include "cli/options/cli11_names.hpp"

namespace ringside::cli {

// Adds the program's listed subcommands of `parent` ("" for ringside itself) in the order of the
// list.
void add_commands(CLI::App& app, const char* parent = "");

}  // namespace ringside::cli
