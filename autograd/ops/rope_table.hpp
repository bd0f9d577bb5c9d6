// The angles of RoPE for frequencies of the caller's choice, such as those that were scaled for
// longer sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/ops/ops.hpp"

namespace ringside::autograd {

// cos and sin of position * frequencies[i], both [positions, D/2] for D/2 frequencies.
RopeTable rope_table(std::int64_t positions, const std::vector<double>& frequencies, DType dtype);

}  // namespace ringside::autograd
