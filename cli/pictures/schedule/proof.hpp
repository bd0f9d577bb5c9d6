// The result of `ringside prove` for one algorithm, the table that it prints, and what proofs of
// algorithms and of pipeline schedules have in common.
#pragma once

#include <iostream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cli/pictures/command_result.hpp"
#include "cli/pictures/json_file.hpp"
#include "cli/pictures/table.hpp"
#include "collectives/algorithms/catalogue.hpp"

namespace ringside::cli {

// What was found in the cases of a proof: of an algorithm, or of a pipeline schedule.
struct Findings {
  int cases = 0;
  int failed = 0;                        // cases with a sentence
  std::vector<std::string> sentences{};  // those of smaller cases first
  double time_ms = 0;                    // of the proof

  bool hold() const { return failed == 0; }
  void add_case(const std::vector<std::string>& found);
};

struct Proof {
  collectives::Algorithm algorithm;
  int max_size = 0;     // proved for 1 to max_size ranks, and for every root if there is one
  Findings findings{};  // a case is a size and a root
  int steps = 0;        // with max_size ranks
  int chunks = 0;       // with max_size ranks: the chunks of the buffer
  int chunks_sent = 0;  // with max_size ranks: by the rank that sends most
};

// Verifies the algorithm for 1 to max_size ranks and every root, or for the cases of its file. An
// exception of the algorithm becomes a finding.
Proof prove(const collectives::Algorithm& algorithm, int max_size);

// The algorithms on `size` ranks beside the lower bounds of their collectives, and which of them
// another one dominates.
CommandResult report_bounds(const std::vector<collectives::Algorithm>& algorithms, int size);

// A line for each proof, and what its columns mean.
void print_table(std::ostream& out, const std::vector<Proof>& proofs);

Table table_of(const std::vector<Proof>& proofs);

// Below the table of proofs: the first ten sentences of each.
void print_findings(std::ostream& out, const Findings& findings);

// Prints the proofs of algorithms, or of pipeline schedules, and writes them to `json_path` if it
// is not empty. Throws Error if one does not hold; `things` are what was proved.
template <class AnyProof>
void report_proofs(const std::vector<AnyProof>& proofs, const std::string& json_path,
                   const char* things) {
  std::ostream& out = stream_beside(json_path);
  print_table(out, proofs);
  Json json = table_of(proofs).json();
  int wrong = 0;
  for (std::size_t i = 0; i < proofs.size(); ++i) {
    print_findings(out, proofs[i].findings);
    json[i]["findings"] = proofs[i].findings.sentences;
    if (!proofs[i].findings.hold()) ++wrong;
  }
  out.flush();
  if (!json_path.empty()) write_json_file(json_path, json);
  require(wrong == 0, "{} of {} {} are wrong: see the findings above", wrong, proofs.size(),
          things);
}

}  // namespace ringside::cli
