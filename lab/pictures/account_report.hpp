// What `ringside account` says of a plan: its facts, the memory of a rank by kind and stage, what
// it sends, and the parts of a step. The same for the terminal, for the page and for other
// programs.
#pragma once

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/report/report.hpp"
#include "planning/account.hpp"

namespace ringside::cli {

Report account_report(const planning::Account& account);

// Keys carry their unit: _bytes, _seconds, _flops.
Json account_json(const planning::Account& account);

}  // namespace ringside::cli
