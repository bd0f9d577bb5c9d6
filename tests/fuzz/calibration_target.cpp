// Fuzzes the reader of the calibration file.
#include "base/read_file.hpp"
#include "tests/fuzz/target.hpp"

#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "collectives/selection/calibration.hpp"
#include "collectives/selection/calibration_file.hpp"
#include "tests/transformer/temporary_directory.hpp"

namespace {

using namespace ringside::collectives;

const TemporaryDirectory& cache() {
  static const TemporaryDirectory directory;
  ::setenv("XDG_CACHE_HOME", directory.path().c_str(), 1);
  return directory;
}

}  // namespace

namespace ringside::fuzz {

bool try_input(const std::string& input) {
  cache().write("ringside/calibration.json", input);
  const MachineCosts costs = costs_here("tcp");  // an invalid file counts as missing
  if (!std::isfinite(costs.common.alpha) || costs.common.alpha < 0)
    throw std::logic_error("a calibration was accepted whose alpha is no time");
  for (const Correction& correction : costs.corrections)
    for (const double factor : correction.factors)
      if (!(factor > 0))
        throw std::logic_error("a calibration was accepted that makes time vanish");
  return costs.common.alpha != built_in_costs("tcp").common.alpha;
}

std::vector<std::string> good_inputs() {
  MachineCosts costs = built_in_costs("tcp");
  costs.common.alpha *= 2;
  costs.corrections = {
      {number_of(find_algorithm(Collective::all_reduce)), 3, {1, 1, 1, 1, 1, 1, 1}}};
  cache();
  keep_calibration({{"tcp", costs}, {"shm", costs}});
  return {read_file(calibration_file())};
}

std::vector<std::string> words() {
  return {"\"entries\":",
          "\"transport\":",
          "\"tcp\"",
          "\"alpha_us\":",
          "\"buffer_bytes\":",
          "null",
          "-1",
          "1e999",
          "1e-400",
          "9223372036854775807",
          "[]",
          "{}",
          "\"\"",
          "[[[[[[[[",
          "{\"a\":",
          ",",
          "\xff",
          "\\ud800",
          "0"};
}

void repair(std::string&) {}

}  // namespace ringside::fuzz
