// The table of options (training/plan/options.hpp) at a command line.
#pragma once

#include <optional>
#include <string>

#include "cli/options/options.hpp"
#include "training/plan/options.hpp"

namespace ringside::cli {

// Declares all rows under their headings. The command line fills `plan`, which must outlive the
// command.
void add_training_options(const Options& option, training::Plan& plan);

// Declares one row, such as "--device", for a command with a field of its own.
DeclaredOption add_training_option(const Options& option, const char* flag, std::string& value);
DeclaredOption add_training_option(const Options& option, const char* flag,
                                   std::optional<double>& value);

}  // namespace ringside::cli
