// exchange_rows: a differentiable all-to-all of blocks of unequal length.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"

namespace ringside::parallel {

// Blocks of unequal length: the first counts.sent[0] rows of x go to rank 0, the next
// counts.sent[1] to rank 1, ... -> the blocks that the ranks sent to this one, in the order of
// ranks; the gradient goes back the same way. x has the sum of `sent` rows, [rows, n]; any count
// may be 0.
struct RowCounts {
  std::vector<std::int64_t> sent, received;  // [rank]; what a rank sends, the other receives
};
autograd::Tensor exchange_rows(const autograd::Tensor& x, const RowCounts& counts,
                               collectives::ProcessGroup& group, std::string_view label);

}  // namespace ringside::parallel
