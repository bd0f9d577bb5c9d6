// The losses of a block of logits whose columns are divided over ranks (vocabulary.hpp).
#pragma once

#include "autograd/kernels/row_numbers.hpp"
#include "autograd/ops/vocabulary.hpp"

namespace ringside::autograd {

// targets, int32 on the CPU, with ids of the whole vocabulary -> the same (row_numbers.hpp) seen
// from a rank with V_r = `columns`. Any ignore_index is allowed, also an id.
Tensor targets_seen_here(const Tensor& targets, VocabularyRange range, std::int64_t columns,
                         std::int32_t ignore_index);

// Joins the numbers of all ranks: afterwards `numbers` are those of the whole rows, with the same
// bits on all ranks. own_largest is what numbers.largest was before: the maximum of this rank's
// columns.
void join(const RowNumbers& numbers, const Tensor& own_largest, const RowStatistics& statistics);

// The losses [rows], fp64 on the CPU. An ignored row has loss 0.
void losses_of_whole_rows(const RowNumbers& whole, const Tensor& targets, const Tensor& losses);

// This rank's logits z [rows, V_r], of a compute dtype, and targets_seen_here [rows], both on one
// device -> losses [rows], of the whole rows, fp64 on the CPU, with the same bits on all ranks.
// Overwrites z. With `gradient` it returns, in `dtype`,
//
//     dz[t, v] = (softmax of the whole row t [v] - [v == target]) weight
Tensor losses_of_divided_rows(const Tensor& z, const Tensor& targets, double weight, bool gradient,
                              DType dtype, const RowStatistics& statistics, const Tensor& losses);

}  // namespace ringside::autograd
