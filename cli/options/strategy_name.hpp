// The check of an option that names parallel strategies.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/options/option_checks.hpp"

namespace ringside::cli {

// Refuses what is not one of these strategies, one that sends fewer bytes, or one of your own.
// `also_called`: as of one_of().
Check strategy_name(std::vector<std::string> names,
                    std::map<std::string, std::string> also_called = {});

}  // namespace ringside::cli
