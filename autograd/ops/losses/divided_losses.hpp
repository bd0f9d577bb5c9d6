// The losses of a block of logits whose columns are divided over ranks (vocabulary.hpp).
#pragma once

#include "autograd/ops/vocabulary.hpp"

namespace ringside::autograd {

// A target as this rank sees it: 0 .. V_r - 1 is a column here, V_r stands for a column of another
// rank, and `ignored_here` for an ignored token.
constexpr std::int32_t ignored_here = -1;

// targets, int32 on the CPU, with ids of the whole vocabulary -> the same seen from a rank with
// V_r = `columns`. Any ignore_index is allowed, also an id.
Tensor targets_seen_here(const Tensor& targets, VocabularyRange range, std::int64_t columns,
                         std::int32_t ignore_index);

// What is known of each row of logits, on the CPU.
struct RowNumbers {
  Tensor largest;  // [rows]
  Tensor sums;     // [2, rows]: the total of exp(z - largest), then z[target] or 0
};

// Joins the numbers of all ranks: afterwards `numbers` are those of the whole rows, with the same
// bits on all ranks. own_largest is what numbers.largest was before: the maximum of this rank's
// columns.
void join(const RowNumbers& numbers, const Tensor& own_largest, const RowStatistics& statistics);

// The losses [rows], fp64 on the CPU. An ignored row has loss 0.
void losses_of_whole_rows(const RowNumbers& whole, const Tensor& targets, const Tensor& losses);

// This rank's logits z [rows, V_r], fp32 or fp64 on the CPU, and targets_seen_here [rows] -> losses
// [rows], of the whole rows, with the same bits on all ranks. Overwrites z; with `gradient`, by
//
//     dz[t, v] = (softmax of the whole row t [v] - [v == target]) weight
void losses_of_divided_rows_on_cpu(const Tensor& z, const Tensor& targets, double weight,
                                   bool gradient, const RowStatistics& statistics,
                                   const Tensor& losses);

// The same on any device. Returns dz in `dtype`, which may be z.
Tensor losses_of_divided_rows(const Tensor& z, const Tensor& targets, double weight, bool gradient,
                              DType dtype, const RowStatistics& statistics, const Tensor& losses);

}  // namespace ringside::autograd
