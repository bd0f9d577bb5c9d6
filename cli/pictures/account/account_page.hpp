// The page of `ringside account --html`: memory by kind and stage, the parts of a step, and what
// binds over the batch.
#pragma once

#include "cli/pictures/report/report.hpp"
#include "planning/account.hpp"

namespace ringside::cli {

Report account_page(const planning::Account& account);

}  // namespace ringside::cli
