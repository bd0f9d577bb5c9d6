// The questions of the course's communication accounting, each with its answer, and with the wrong
// answers that were published and where they come from.
#pragma once

#include <string>
#include <vector>

#include "cli/pictures/json_file.hpp"
#include "planning/account.hpp"

namespace ringside::cli {

struct QuestionInput {
  planning::Model model;
  planning::Plan plan;
  planning::Machine machine;
  double tokens = 4096;  // of one device
};

struct Answer {
  std::vector<planning::Section> derivation;
  std::string text;  // the answer in sentences, with tables; lines fit 80 columns
  Json figures = Json::object();
};

// devices: (a) how many hold the state.  fsdp-devices: (b) how many FSDP needs with activations.
// tokens: (c) the batch that is bound by computing.  splits: (d) how to make it smaller.
const std::vector<std::string>& question_names();

Answer answer_to(const std::string& question, const QuestionInput& input);

}  // namespace ringside::cli
