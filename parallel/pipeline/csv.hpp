// Schedules as CSV, as torch.distributed.pipelining writes and reads them: one row per rank, one
// cell per action. An empty cell is a step in which the rank is idle; reading skips it.
//
//     0F0,0F1,,,0B0,0B1
//     ,1F0,1B0,1F1,1B1,
//
// In torch: PipelineScheduleMulti._dump_csv and _load_csv, in torch/distributed/pipelining/
// schedules.py. Files go both ways: computations alone ("compute_only" there), or with messages
// ("compute_comms"). Actions that move parameters (UNSHARD, RESHARD) are not part of a schedule
// here.
#pragma once

#include <string>

#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

// A row ends with a line feed. Idle steps are not written: they follow from the durations.
std::string csv_of(const Schedule& schedule);

// The number of ranks, stages and micro-batches, and the rank of each stage, follow from the cells.
// Throws Error that begins with "NAME:LINE:COLUMN: " and says what was expected.
Schedule parse_csv(const std::string& text, const std::string& name);

// The same from a file. Throws Error that names the file if it cannot be read.
Schedule read_csv(const std::string& path);

}  // namespace ringside::pipeline_parallel
