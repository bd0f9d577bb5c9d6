// Synthesis: a solver finds an algorithm for a network, or proves that there is none.
//
// A node holds chunks. In a step it sends chunks that it held before the step to its neighbours. A
// step has one or more ROUNDS: in a round a link carries as many chunks as it is wide. With S steps
// and R rounds in all, C chunks of a buffer of n bytes take S alpha + (R / C) n beta: few steps for
// a short buffer, few rounds for each chunk for a long one.
//
// The question is given to Z3 as sentences over booleans: node n holds chunk c after step s; node a
// sends chunk c to node b in step s. What is found is proved by verify() as any other algorithm;
// that there is none is the word of Z3.
//
// A collective that adds is another one run backwards: where an all-gather sends a chunk from a to
// b in step s, a reduce-scatter sends it from b to a in step S+1-s, and adds. An all-reduce is a
// reduce-scatter and an all-gather, each with half of the steps and rounds.
//
// Source: Cai, Liu, Maleki, Musuvathi, Mytkowicz, Nelson and Saarikivi, "Synthesizing optimal
// collective algorithms" (SCCL), PPoPP 2021, sections 3 and 4.
#pragma once

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "collectives/exchange/algorithm_file.hpp"
#include "collectives/exchange/network.hpp"

namespace ringside::collectives {

struct Question {
  Collective collective;
  int root = 0;
  int chunks = 1;  // of each rank's block, or of the buffer where ranks have no blocks
  int steps = 1, rounds = 1;
  Seconds time_limit{300};
};

enum class Answer { found, none, out_of_time };

struct Synthesis {
  Answer answer;
  std::string why;          // if none: "Z3 proved it"
  CaseOfFile algorithm;     // if found
  std::vector<int> rounds;  // if found: of each step
};

// Throws Error for a question that has no sense or no encoding (all_to_all, barrier), and where Z3
// is missing.
Synthesis synthesize(const Question& question, const Network& network);

}  // namespace ringside::collectives
