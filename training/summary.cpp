#include "training/summary.hpp"

#include <algorithm>

namespace ringside::training {

Summary::Summary(std::int64_t first_step, std::int64_t last_step)
    : first(first_step),
      last(last_step),
      at_each_end(std::clamp<std::int64_t>((last - first) / 20, 1, 10)) {}

void Summary::add(const StepReport& report) {
  const double loss = report.bits_per_byte / static_cast<double>(at_each_end);
  if (report.step <= first + at_each_end) first_loss += loss;
  if (report.step > last - at_each_end) last_loss += loss;
  seconds += report.step_seconds;
  tokens += report.tokens_per_second * report.step_seconds;
  communication_seconds += report.communication_seconds;
  if (communication_by_axis.empty()) {
    communication_by_axis = report.communication_by_axis;
    return;
  }
  for (std::size_t i = 0; i < communication_by_axis.size(); ++i)
    communication_by_axis[i].second += report.communication_by_axis[i].second;
}

}  // namespace ringside::training
