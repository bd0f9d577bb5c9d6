// The memory of ranks that train: one step of a net of matrices with AdamW, without ZeRO and under
// each of its stages.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "autograd/tensor/dtype.hpp"
#include "exercises/judge/judge.hpp"

namespace ringside::exercises {

struct LedgerEntry {
  std::string what;  // "bf16, ZeRO stage 1"
  int stage = 0;     // 0: data parallel without ZeRO
  autograd::DType dtype = autograd::DType::fp32;
  std::int64_t parameters = 0;          // numbers of the whole net
  std::array<std::int64_t, 3> bytes{};  // of this rank: parameters, gradients, optimizer state
};

std::vector<LedgerEntry> ledger_under_zero(World& world);

}  // namespace ringside::exercises
