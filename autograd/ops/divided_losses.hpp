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

// This rank's logits z [rows, V_r] and targets_seen_here [rows], on one device -> losses [rows], of
// the whole rows, with the same bits on all ranks. Overwrites z. With `gradient` returns dz [rows,
// V_r] in `dtype`, which may be z:
//
//     dz[t, v] = (softmax of the whole row t [v] - [v == target]) weight
Tensor losses_of_divided_rows(const Tensor& z, const Tensor& targets, double weight, bool gradient,
                              DType dtype, const RowStatistics& statistics, const Tensor& losses);

}  // namespace ringside::autograd
