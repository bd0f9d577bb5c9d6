// The page of `ringside account --html`: memory by kind and stage, the parts of a step, and what
// binds over the batch.
#pragma once

#include "cli/pictures/report/report.hpp"
#include "planning/account.hpp"

namespace ringside::cli {

// The memory of a rank of each stage, stacked by kind.
Figure memory_figure(const planning::Account& account);

// The plan with other numbers of micro-batches: the parts of a step per token of a device. Where a
// curve is flat, it grows with the batch; where it falls, a larger batch pays it off. The highest
// binds.
Figure batch_figure(const planning::Account& account);

Report account_page(const planning::Account& account);

}  // namespace ringside::cli
