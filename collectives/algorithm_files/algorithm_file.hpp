// An algorithm as a file, wherever the name of an algorithm is taken.
//
//     {"collective": "all_reduce", "schedules": [RANK 0, RANK 1, ...]}        my.json
//
// One schedule for each rank (schedule_json.hpp), so the file is for that number of ranks; an array
// of such objects is for several. A broadcast, reduce, gather or scatter may have a "root", else 0.
// Other keys are ignored: what `ringside step --json FILE` writes is such a file.
//
// `ringside msccl` makes such a file of an algorithm of MSCCL, which is XML.
//
// A ProcessGroup reads no files. A program that lets its users force such an algorithm says
//
//     collectives::load_algorithms();  // those that RINGSIDE_ALGORITHM names
//     auto group = collectives::ProcessGroup::from_environment();
//
// and links ringside::algorithm_files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "collectives/algorithms/catalogue.hpp"

namespace ringside::collectives {

// The schedules of all ranks for one case.
struct CaseOfFile {
  Collective collective;
  int root = 0;
  std::vector<Schedule> schedules;  // [rank]
};

// Reads a file and adds it to the catalogue. Nothing is proved: that is for those who show what is
// wrong. Throws Error if the file cannot be read or is not of the form above.
const Algorithm& load_algorithm(const std::string& file);

// The same, and throws Error with the sentence of verify() where a case is wrong. From now on
// algorithm_of_file() has it, so groups of this process may be asked for it.
const Algorithm& load_proved_algorithm(const std::string& file);

// Loads the files in a list as AlgorithmSelection takes it, "all_reduce=two_shot,my.json", by
// load_proved_algorithm(). Names of the catalogue are no files. Call it before a group is made; any
// thread may.
void load_algorithms(const std::string& list = environment("RINGSIDE_ALGORITHM").value_or(""));

// find_algorithm(), where a file is loaded first.
const Algorithm& algorithm_named(Collective collective, const std::string& name);

}  // namespace ringside::collectives
