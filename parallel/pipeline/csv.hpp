// Schedules as CSV, as torch.distributed.pipelining writes and reads them: one row per rank, one
// cell per action. An empty cell is a step in which the rank is idle; reading skips it.
//
//     0F0,0F1,,,0B0,0B1
//     ,1F0,1B0,1F1,1B1,
//
// In torch: PipelineScheduleMulti._dump_csv and _load_csv, in torch/distributed/pipelining/
// schedules.py. Computations alone ("compute_only" there) go both ways. Of a lowered file
// ("compute_comms") messages and reductions are read. These cells say when torch moves parameters
// and waits, which here hooks and the executor decide; they are left out:
//
//     2UNSHARD 2RESHARD                 parameters of stage 2 that FSDP gathers and frees
//     2WAIT_SEND_F0 2WAIT_SEND_B0       until a message has been sent
//     2WAIT_REDUCE_GRAD                 until the gradients have been reduced
//
// (2F4;5B0)OVERLAP_F_B, forward of one stage beside backward of another, becomes 2F4 and 5B0.
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
