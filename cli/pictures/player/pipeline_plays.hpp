// The pipeline schedules on the page of `ringside step --html`, in the form of player_data.hpp:
//
//     {"name": "pipeline", "promise": ..., "row": "rank",
//      "algorithms": [
//        {"name": "1f1b",
//         "plays": {"4": {"8": {                       by ranks and micro-batches
//            "boxes": [["0F0", 0, 1, false], ...], ...],  [rank]: action as in csv.hpp, start, end;
//                                                      true: drawn pale, as a second stage
//            "messages": [{"from": 0, "to": 1, "label": "F0", "arrives": 1}, ...],
//            "bubble": 0.2727}}}}]}
//
// The page's script finds the steps in them: from one start, end or arrival to the next.
#pragma once

#include <string>

#include "cli/pictures/json_file.hpp"
#include "parallel/pipeline/proof/timing.hpp"
#include "parallel/pipeline/schedule.hpp"

namespace ringside::cli {

inline constexpr int most_played_micro_batches = 64;

// What the reader asked for: the page shows it first. `schedule` has computations only, and is
// proved.
struct PipelineChoice {
  std::string name;  // "1f1b", "csv:mine.csv"
  pipeline_parallel::Schedule schedule;
  int stages_per_rank = 0;  // 0: the generator's default
  pipeline_parallel::Durations durations = {};
};

// All schedules of the catalogue, on the numbers of ranks that the page offers and on some numbers
// of micro-batches; the choice among them.
Json pipeline_family(const PipelineChoice& choice);

}  // namespace ringside::cli
