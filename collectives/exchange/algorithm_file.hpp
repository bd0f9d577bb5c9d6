// An algorithm as a file, wherever the name of an algorithm is taken.
//
//     {"collective": "all_reduce", "schedules": [RANK 0, RANK 1, ...]}        my.json
//
// One schedule for each rank (schedule_json.hpp), so the file is for that number of ranks; an array
// of such objects is for several. A broadcast, reduce, gather or scatter may have a "root", else 0.
// Other keys are ignored: what `ringside step --json FILE` writes is such a file.
//
// A file of XML is an algorithm of MSCCL (msccl_xml.hpp), for its number of GPUs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/catalogue.hpp"

namespace ringside::collectives {

// The schedules of all ranks for one case.
struct CaseOfFile {
  Collective collective;
  int root = 0;
  std::vector<Schedule> schedules;  // [rank]
};

// Whether `name` is a file and no name of the catalogue: it has an ending or a folder.
bool is_algorithm_file(std::string_view name);

// Reads a file and adds it to the catalogue. Nothing is proved: that is for those who show what is
// wrong. Throws Error if the file cannot be read or is not of the form above.
const Algorithm& load_algorithm(const std::string& file);

// The same, and throws Error with the sentence of verify() where a case is wrong.
const Algorithm& load_proved_algorithm(const std::string& file);

// find_algorithm(), or load_proved_algorithm() of a file of that collective.
const Algorithm& algorithm_named(Collective collective, const std::string& name);

}  // namespace ringside::collectives
