// The check of an option whose value is one of several names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/cli11_names.hpp"

namespace ringside::cli {

// Refuses any other value, with the name that was probably meant. `also_called` has other words for
// some of the names: {{"fsdp", "zero3"}}.
CLI::Validator one_of(std::vector<std::string> names,
                      std::map<std::string, std::string> also_called = {});

}  // namespace ringside::cli
