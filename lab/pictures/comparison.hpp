// The parts of a step, predicted beside measured.
#pragma once

#include <string>

#include "cli/pictures/json_file.hpp"
#include "planning/simulation/recorded_step.hpp"

namespace ringside::cli {

std::string comparison_text(const planning::StepParts& predicted,
                            const planning::StepParts& measured);
Json comparison_json(const planning::StepParts& predicted, const planning::StepParts& measured);

}  // namespace ringside::cli
