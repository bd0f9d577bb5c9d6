// LearningRate: a linear warm-up, then half a cosine down to a floor.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace ringside::training {

//     peak        ╱‾‾╲_
//                ╱     ╲
//              ╱        ╲_
//     floor                ╲__
//             0   warmup    steps
//
// Sources: Loshchilov and Hutter, "SGDR" (ICLR 2017), equation 5, without restarts; the warm-up is
// that of Goyal et al. (2017), section 2.2.
struct LearningRate {
  double peak = 3e-3;
  double floor = 3e-4;
  std::int64_t warmup = 0;  // steps
  std::int64_t steps = 1;   // of the whole run; the last step uses `floor`

  // The rate of step `step`, counted from 0.
  double at(std::int64_t step) const {
    const auto taken = static_cast<double>(step + 1);
    if (step < warmup) return peak * taken / static_cast<double>(warmup);
    if (step + 1 >= steps) return floor;
    const double progress =
        (taken - static_cast<double>(warmup)) / static_cast<double>(steps - warmup);
    return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
  }
};

}  // namespace ringside::training
