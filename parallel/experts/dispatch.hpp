// Experts that are divided among the ranks of a group (expert parallel): tokens travel to the ranks
// that have the experts which they chose, and the outputs travel back.
//
//     4 experts on 2 ranks     rank 0: experts 0 and 1      rank 1: experts 2 and 3
//
//     rank 0   rows of  0 0 1 2 3 3   --|     |--   rank 0   0 0 1 | 0       sorted:  0 0 0 | 1
//     rank 1   rows of  0 2 2         --| a2a |--   rank 1   2 3 3 | 2 2              2 2 2 | 3 3
//                                                   from rank  0     1
//
// Lepikhin et al., "GShard" (2020), section 3.2; here no expert has a capacity, so the blocks have
// the lengths that the router makes, and no token is dropped. Any of them may be empty.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"
#include "parallel/experts/exchange_rows.hpp"

namespace ringside::expert_parallel {

using autograd::Tensor;

// Who sends how many rows, and the order of what arrives.
struct Dispatch {
  parallel::RowCounts rows;          // between this rank and each rank
  std::vector<std::int64_t> counts;  // of each expert of this rank, from all ranks
  // int32 [received rows]. Row i, in the order of experts, arrived as row sorted[i]; the row that
  // arrived as j is row arrived[j] in the order of experts.
  Tensor sorted, arrived;
};

// matrix[r][e]: how many rows rank r has for expert e of the rank `rank`.
Dispatch plan_dispatch(const std::vector<std::vector<std::int64_t>>& matrix,
                       std::vector<std::int64_t> sent);

// rows [M, n] of this rank's tokens, sorted by expert, and counts [E] of each expert -> what
// `compute` makes of them, in the same order. compute(rows, counts) gets the rows of all ranks for
// the experts of this one, sorted by expert, and returns as many rows. All ranks of `group` call it
// together; it must live until backward is done. Throws Error unless the ranks divide the experts.
using Compute = std::function<Tensor(const Tensor&, std::span<const std::int64_t>)>;
Tensor run_experts(const Tensor& rows, std::span<const std::int64_t> counts, const Compute& compute,
                   collectives::ProcessGroup& group);

}  // namespace ringside::expert_parallel
