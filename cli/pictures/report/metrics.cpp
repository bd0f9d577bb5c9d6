#include "cli/pictures/report/metrics.hpp"

#include <algorithm>
#include <fstream>

#include "base/error.hpp"
#include "base/json.hpp"

namespace ringside::cli {

const Metrics::Step* Metrics::at(std::int64_t step) const {
  const auto found = std::ranges::lower_bound(steps, step, {}, &Step::step);
  return found != steps.end() && found->step == step ? &*found : nullptr;
}

Metrics read_metrics(const std::string& path) {
  std::ifstream file(path);
  require(file.is_open(), "cannot read {}: is it a file of `ringside train --metrics`?", path);
  Metrics metrics{path, {}, {}};
  std::int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    try {
      const auto row = Json::parse(line);
      const std::int64_t step = row.at("step");
      if (row.contains("validation_bits_per_byte"))
        metrics.validations.emplace_back(step, row.at("validation_bits_per_byte"));
      else
        metrics.steps.push_back({step, row.at("bits_per_byte"), row.at("step_seconds"),
                                 row.at("communication_seconds"), row.at("tokens_per_second")});
    } catch (const Error&) {
      fail("line {} of {} is not a row of `ringside train --metrics`", number, path);
    }
  }
  require(!metrics.steps.empty(), "{} has no step: is it a file of `ringside train --metrics`?",
          path);
  std::ranges::sort(metrics.steps, {}, &Metrics::Step::step);
  return metrics;
}

}  // namespace ringside::cli
