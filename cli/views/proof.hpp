// What `ringside prove` finds out about one algorithm, and the table that it prints.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "cli/report/json_file.hpp"
#include "collectives/algorithms/catalogue.hpp"

namespace ringside::cli {

struct Proof {
  collectives::Algorithm algorithm;
  int max_size = 0;  // looked at: 1 to max_size ranks, and where there is a root, every root
  int cases = 0;     // pairs of a size and a root
  int failed = 0;    // of these, with findings
  std::vector<std::string> findings{};  // in words, those of smaller sizes first; none if all holds
  int steps = 0;                        // with max_size ranks
  int chunks = 0;                       // with max_size ranks: pieces that the buffer is cut into
  int chunks_sent = 0;                  // with max_size ranks: by the rank that sends most
  double time_ms = 0;                   // that the proof took

  bool holds() const { return failed == 0; }
};

// Verifies the algorithm for 1 to max_size ranks and every root. Whatever an algorithm throws is
// one more finding.
Proof prove(const collectives::Algorithm& algorithm, int max_size);

// A line for each proof; below it the first findings of each that fails.
void print_proofs(std::ostream& out, const std::vector<Proof>& proofs);

Json json_of(const Proof& proof);

}  // namespace ringside::cli
