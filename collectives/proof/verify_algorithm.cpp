#include "collectives/proof/verify_algorithm.hpp"

#include <fmt/format.h>

#include "collectives/proof/verify.hpp"

namespace ringside::collectives {

std::string case_in_words(const Algorithm& algorithm, int size, int root) {
  const std::string ranks = size == 1 ? "1 rank" : fmt::format("{} ranks", size);
  return algorithm.title() + ", " + ranks +
         (has_root(algorithm.collective) ? fmt::format(", root {}", root) : "");
}

std::vector<std::string> verify(const Algorithm& algorithm, int size, int root) {
  std::vector<std::string> found;
  for (const std::string& sentence :
       verify(algorithm.collective, make_schedules(algorithm, size, root), root)) {
    found.push_back(case_in_words(algorithm, size, root) + ": " + sentence);
  }
  return found;
}

}  // namespace ringside::collectives
