// What the page of `ringside step --html` plays, as JSON: who holds what after each step, and what
// each algorithm costs. All of it is computed here, so that the page's script only draws.
//
//     {"families": [                               a collective, or any other kind of schedule
//        {"name": "all_reduce",
//         "promise": "every chunk ...",            what holds at the end
//         "cell": "A cell names ...",              what the text of a cell means
//         "row": "rank", "column": "chunk",        the words above the table
//         "algorithms": [
//           {"name": "ring", "cautionary": false,
//            "plays": {"4": {                      by the number of ranks
//               "root": null,
//               "columns": ["0", "1", "2", "3"],
//               "start": [["0", ...], ...],        [rank][column], "0+3": parts joined by +
//               "steps": [
//                 {"says": "what arrives is added",
//                  "messages": [{"from": 0, "to": 1,
//                                "taken": [3], "chunks": [3],   as sender and receiver name them
//                                "action": "add",
//                                "input": false,   it sends what the rank holds, not its input
//                                "label": "3", "words": "chunk 3"}, ...],
//                  "cells": [["0", ...], ...]}, ...]}},        after the step
//            "costs": {"4": [[[6, 1536]], ...]}}, ...]}, ...],   [size][line]: messages, bytes
//      "sizes": [1024, ...],                       of the buffer, in bytes
//      "slice_bytes": 262144,
//      "first": {"family": "all_reduce", "algorithm": "ring", "ranks": 4}}
//
// A family without "costs" has no comparison of costs on the page: the pipeline schedules
// (pipeline_plays.hpp), whose plays have boxes over time instead of cells.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/pictures/json_file.hpp"
#include "cli/pictures/player/pipeline_plays.hpp"
#include "collectives/algorithms/catalogue.hpp"

namespace ringside::cli {

// What the reader asked for: the page shows it first.
struct PlayerChoice {
  const collectives::Algorithm& algorithm;
  int ranks;
  int root;  // with fewer ranks than that, the last rank is the root
};

inline constexpr int most_played_ranks = 16;

// The messages of a step, as `ringside step --json` writes them too.
Json messages_of(const std::vector<collectives::Schedule>& schedules, int step);

// The numbers of ranks that the page offers: 2 to 8, and that of the choice.
std::vector<int> played_ranks(int chosen);

// The sizes of the buffer that the page offers, in bytes.
std::vector<std::uint64_t> played_sizes();

// All collectives and algorithms, and all pipeline schedules, of the catalogues. Throws Error
// unless 1 <= ranks <= 16, and micro-batches <= 64.
Json player_data(const PlayerChoice& choice);
Json player_data(const PipelineChoice& choice);

}  // namespace ringside::cli
