#include "bench/measured_costs.hpp"

#include <algorithm>
#include <vector>

#include "base/clock.hpp"
#include "collectives/execution/reduce.hpp"

namespace ringside::cli {
namespace {

using collectives::CostParameters;
using collectives::MachineCosts;

// Seconds per byte to add two buffers of `bytes` bytes, repeatedly: the best of several tries.
double seconds_per_byte_added(std::size_t bytes) {
  std::vector<float> ours(bytes / sizeof(float), 1.0f), theirs(ours);
  const auto add = [&] {
    collectives::combine(collectives::DataType::fp32, collectives::ReduceOp::sum, ours.data(),
                         ours.data(), theirs.data(), ours.size());
  };
  const int repeat = std::max(1, static_cast<int>((16u << 20) / bytes));
  double best = 1;
  add();
  for (int i = 0; i < 7; ++i) {
    const auto start = Clock::now();
    for (int r = 0; r < repeat; ++r) add();
    best = std::min(best, seconds_since(start) / repeat);
  }
  return best / static_cast<double>(bytes);
}

}  // namespace

MachineCosts solve_costs(const CalibrationTimes& times, int cores) {
  const double p = times.ranks, c = std::min<double>(cores, p),
               crowd = std::max(0.0, p / cores - 1), links = p - 1;
  MachineCosts costs;
  CostParameters& common = costs.common;
  common.cores = cores;
  common.alpha = times.pair_few;
  // Either the cores are busy with the messages of all ranks, or each rank with its own. The
  // overhead is at most what either bound allows.
  const double by_cores = times.direct_few * c / (2 * p * links),
               by_rank = (times.direct_few - common.alpha) / (p - 2);
  common.overhead = std::min({by_cores, std::max(by_rank, by_cores / 10), common.alpha});
  common.turn = crowd > 0 ? std::max(0.0, times.ring_few / links - common.alpha) / crowd : 0;
  for (std::size_t i = 0; i < std::size(MachineCosts::lengths); ++i) {
    const double buffer = static_cast<double>(MachineCosts::lengths[i]);
    costs.per_byte[i].beta = std::max(0.0, times.pair_many[i] - times.pair_few) / (buffer / 2);
    costs.per_byte[i].copy =
        std::max(0.0, times.ring_many[i] - times.ring_few) * c / (2 * links * buffer);
  }
  return costs;
}

std::array<double, 3> measure_adding() {
  std::array<double, 3> seconds{};
  for (std::size_t i = 0; i < std::size(MachineCosts::lengths); ++i)
    seconds[i] = seconds_per_byte_added(MachineCosts::lengths[i]);
  return seconds;
}

}  // namespace ringside::cli
