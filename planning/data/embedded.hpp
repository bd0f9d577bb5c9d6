// The data files of python/ringside/planning/data/, as text within the program. CMakeLists.txt
// makes the source.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ringside::planning {

// data/models.json.
const char* embedded_models();

// data/machines/*.json: name without its ending, and text.
const std::vector<std::pair<std::string, std::string>>& embedded_machines();

}  // namespace ringside::planning
