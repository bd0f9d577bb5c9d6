#pragma once

#include <string>

#include "collectives/algorithm_files/algorithm_file.hpp"
#include "collectives/selection/algorithm_selection.hpp"

namespace ringside::tests {

// The algorithms of a list with files, which are loaded first.
inline collectives::AlgorithmSelection forced(const std::string& list) {
  collectives::load_algorithms(list);
  return collectives::AlgorithmSelection(list);
}

}  // namespace ringside::tests
