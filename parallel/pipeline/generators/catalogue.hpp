// The catalogue: every schedule by its name.
//
// To add a schedule, write generators/NAME.hpp and add one line to catalogue.cpp: it is then
// proved, drawn, timed and executed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/pipeline/schedule.hpp"

namespace ringside::pipeline_parallel {

struct Generator {
  std::string_view name;  // "1f1b"
  // Stages per rank: what it takes, and what it takes if the user names none.
  int fewest_stages_per_rank = 1;
  int most_stages_per_rank = 1;
  int default_stages_per_rank = 1;
  std::vector<int> (*placement)(int ranks, int stages_per_rank) = loop_placement;
  bool whole_rounds = false;  // the number of micro-batches must be a multiple of the ranks
  std::vector<Action> (*make)(int ranks, int stages_per_rank, int micro_batches,
                              int rank) = nullptr;
};

constexpr int unlimited_stages = 1 << 16;

const std::vector<Generator>& all_generators();

// "gpipe, 1f1b, interleaved, looped_bfs, zb_h1, zb_v, interleaved_zb and dualpipe_v".
std::string schedule_names();

// Why this generator does not serve these numbers, as a sentence that says what would; empty if it
// does. stages_per_rank 0 is the generator's default.
std::string why_not(const Generator& generator, int ranks, int micro_batches,
                    int stages_per_rank = 0);

// The schedule of all ranks, computations only. Throws Error with the sentence of why_not().
Schedule make_schedule(const Generator& generator, int ranks, int micro_batches,
                       int stages_per_rank = 0);

// The schedule of that name; "csv:FILE" reads a file (csv.hpp), which must then be for these ranks,
// micro-batches and stages per rank; 0 takes what the file has. A name that ends in .so is a shared
// library with a generator of one stage per rank:
//
//     extern "C" decltype(pipeline_parallel::Generator::make) const ringside_schedule = mine;
//
// Throws Error that lists the names.
Schedule make_schedule(const std::string& name, int ranks, int micro_batches,
                       int stages_per_rank = 0);

}  // namespace ringside::pipeline_parallel
