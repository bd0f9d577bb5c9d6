// How far training::memory_of_rank() may be from the ledger of a run, as a share of it.
#pragma once

#include <string>

#include "training/memory_need.hpp"

namespace ringside::testing {

struct MemoryTolerance {
  const char* what;
  double share;
};

// The rows of training/memory_need.hpp. A run has the largest share of those that apply to it.
inline constexpr MemoryTolerance memory_tolerances[] = {
    {"all", 0.05},   {"experts", 0.08}, {"zb_h1", 0.10}, {"zb_v", 0.10},
    {"zero2", 0.20}, {"zero3", 0.20},   {"bf16", 0.35},
};

inline double memory_tolerance(const training::Plan& plan) {
  const std::string its_rows[] = {"all", plan.config.experts > 0 ? "experts" : "",
                                  plan.mesh.given() ? plan.mesh.schedule_name : "", plan.strategy,
                                  name_of(plan.dtype)};
  double share = 0;
  for (const auto& [what, row] : memory_tolerances)
    for (const std::string& its_row : its_rows)
      if (its_row == what) share = std::max(share, row);
  return share;
}

}  // namespace ringside::testing
