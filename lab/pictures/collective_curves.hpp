// The times of a collective on a machine that is not here: as a table, as JSON, and as curves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/report/report.hpp"
#include "planning/collective_time.hpp"

namespace ringside::cli {

// [size][algorithm], for one number of ranks.
using CollectiveTimes = std::vector<std::vector<planning::CollectiveTime>>;

// `sizes` are texts such as "64KB". Throws Error for an unknown algorithm or a wrong size.
CollectiveTimes collective_times(collectives::Collective collective,
                                 const std::vector<std::string>& algorithms,
                                 const std::vector<std::string>& sizes, std::int64_t ranks,
                                 const planning::Machine& machine);

// A * marks the fastest, whose bus bandwidth is in the last column.
std::string collective_table(const CollectiveTimes& times, const planning::Machine& machine);
Json collective_json(const CollectiveTimes& times, const planning::Machine& machine);
// The time over the size, a curve for each algorithm.
Figure collective_figure(const CollectiveTimes& times, const planning::Machine& machine);

}  // namespace ringside::cli
