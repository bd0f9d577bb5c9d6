// The one table of the benches of a training step, of which each command shows some columns.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "bench/training/step_bench.hpp"
#include "cli/pictures/table.hpp"

namespace ringside::cli {

// A row for each contender, named in the column `title`. People see the columns whose keys are
// `shown`, and bytes sent along the axes that a mesh has; JSON has all:
//
//     bucket_mb                      if it is an option of the contender
//     step_ms, exposed_ms            a step, and how much of it waited for other ranks
//     communication_ms, calls        calls of the contender's group were running; not in a mesh
//     bytes_sent, sent_parameters    by a rank in a step; the same in bytes of all parameters
//     AXIS_bytes_sent                instead of these in a mesh
//     ratio                          to the step of the first row
//     held_bytes                     parameters, gradients and optimizer state between steps
//     peak_bytes, peak_activations_bytes, estimated_peak_activations_bytes
//     model_exposed_ms, followed_exposed_ms         the two predictions of bench ddp
//     sequence_parallel, schedule, micro_batches    of a mesh
//
// Bytes in memory are those of the rank with the most.
Table step_table(const std::string& title, const std::vector<StepRow>& rows,
                 const std::set<std::string>& shown);

}  // namespace ringside::cli
