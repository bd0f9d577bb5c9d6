// The result of `ringside prove` for one algorithm, and the table that it prints.
#pragma once

#include <iostream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cli/pictures/json_file.hpp"
#include "collectives/algorithms/catalogue.hpp"

namespace ringside::cli {

struct Proof {
  collectives::Algorithm algorithm;
  int max_size = 0;  // proved for 1 to max_size ranks, and for every root if there is one
  int cases = 0;     // pairs of a size and a root
  int failed = 0;    // cases with findings
  std::vector<std::string> findings{};  // sentences, those of smaller sizes first
  int steps = 0;                        // with max_size ranks
  int chunks = 0;                       // with max_size ranks: the chunks of the buffer
  int chunks_sent = 0;                  // with max_size ranks: by the rank that sends most
  double time_ms = 0;                   // of the proof

  bool holds() const { return failed == 0; }
};

// Verifies the algorithm for 1 to max_size ranks and every root. An exception of the algorithm
// becomes a finding.
Proof prove(const collectives::Algorithm& algorithm, int max_size);

// Prints a line for each proof, and below the table the first findings of each failed proof.
void print_proofs(std::ostream& out, const std::vector<Proof>& proofs);

// The first ten findings of a proof; nothing if there are none.
void print_findings(std::ostream& out, const std::vector<std::string>& findings);

Json json_of(const Proof& proof);

// Prints the proofs of algorithms, or of pipeline schedules, and writes them to `json_path` if it
// is not empty. Throws Error if one does not hold; `things` are what was proved.
template <class AnyProof>
void report_proofs(const std::vector<AnyProof>& proofs, const std::string& json_path,
                   const char* things) {
  print_proofs(stream_beside(json_path), proofs);
  std::cout.flush();
  Json json = Json::array();
  int wrong = 0;
  for (const AnyProof& proof : proofs) {
    json.push_back(json_of(proof));
    if (!proof.holds()) ++wrong;
  }
  if (!json_path.empty()) write_json_file(json_path, json);
  require(wrong == 0, "{} of {} {} are wrong: see the findings above", wrong, proofs.size(),
          things);
}

}  // namespace ringside::cli
