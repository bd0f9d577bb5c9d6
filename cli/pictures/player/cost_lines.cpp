#include "cli/pictures/player/cost_lines.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.hpp"

namespace ringside::cli {

using namespace collectives;

namespace {

// Seconds for alpha = 1 and beta = ratio: convex in the ratio, and made of straight pieces.
using SecondsByRatio = std::function<double(double ratio)>;

bool agree(double a, double b, double accuracy) {
  return std::abs(a - b) <= accuracy * std::max(std::abs(a), std::abs(b));
}

// The line that is the longest just below `ratio`. Its slope is a whole number of bytes and its
// height a whole number of half messages, so both are found exactly.
CostLine line_at(const SecondsByRatio& seconds, double ratio) {
  const double here = seconds(ratio);
  for (double distance = ratio / 2; distance > ratio * 1e-8; distance /= 16) {
    CostLine line;
    line.bytes = std::round((here - seconds(ratio - distance)) / distance);
    line.messages = std::round(2 * (here - line.bytes * ratio)) / 2;
    if (agree(line.seconds(1, ratio), here, 1e-10)) return line;
  }
  fail(
      "the cost at beta / alpha = {} is not a whole number of half messages and bytes: are there "
      "too many slices?",
      ratio);
}

// Adds the lines between `flat` and `steep`, which are the longest to the left and to the right.
void add_between(const SecondsByRatio& seconds, const CostLine& flat, const CostLine& steep,
                 std::vector<CostLine>& lines) {
  if (steep.bytes <= flat.bytes) return;
  const double crossing = (flat.messages - steep.messages) / (steep.bytes - flat.bytes);
  // Chunks whose lengths differ by a byte make paths that differ by less than this: one of them
  // will do.
  if (agree(seconds(crossing), flat.seconds(1, crossing), 1e-6)) return;
  const CostLine between = line_at(seconds, crossing);
  add_between(seconds, flat, between, lines);
  lines.push_back(between);
  add_between(seconds, between, steep, lines);
}

}  // namespace

CostParameters alpha_beta_costs(double alpha, double beta, std::uint64_t slice_bytes) {
  return {.alpha = alpha, .beta = beta, .overhead = alpha / 2, .slice_bytes = slice_bytes};
}

std::vector<CostLine> cost_lines(const std::vector<Schedule>& schedules, const Chunks& chunks,
                                 std::uint64_t slice_bytes) {
  const SecondsByRatio seconds = [&](double ratio) {
    return cost_of(schedules, chunks, 1, alpha_beta_costs(1, ratio, slice_bytes)).seconds;
  };
  const CostLine flat = line_at(seconds, lowest_ratio), steep = line_at(seconds, highest_ratio);
  std::vector<CostLine> lines{flat};
  if (steep.bytes == flat.bytes) return lines;
  add_between(seconds, flat, steep, lines);
  lines.push_back(steep);
  return lines;
}

}  // namespace ringside::cli
