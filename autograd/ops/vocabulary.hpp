// The ops of a vocabulary that is divided over ranks: each rank holds some rows of the embedding
// and of the head.
//
//     V = 7 over 3 ranks      rank 0: rows 0 1 2      rank 1: rows 3 4      rank 2: rows 5 6
//
// The ops know nothing of ranks or messages. Where they must know something of the whole row of
// logits, they ask RowStatistics, and parallel/tensor/ answers with all-reduces.
#pragma once

#include <cstdint>

#include "autograd/tensor/tensor.hpp"

namespace ringside::autograd {

// Which rows of the whole vocabulary, 0 to whole - 1, a weight [V_r, n] holds:
//
//     first .. first + V_r - 1
//
// V_r is at least 1 and may differ between ranks.
struct VocabularyRange {
  std::int64_t first = 0, whole = 0;
};

// Joins what the ranks know of the same rows. All ranks make the same calls in the same order, with
// tensors of the same shape: contiguous, on the CPU, fp32 or fp64. A joined tensor has the same
// bits on all ranks.
class RowStatistics {
 public:
  RowStatistics() = default;
  virtual ~RowStatistics() = default;
  RowStatistics(const RowStatistics&) = delete;
  RowStatistics& operator=(const RowStatistics&) = delete;

  // Replaces each number by its maximum over all ranks.
  virtual void max_over_ranks(const Tensor& numbers) const = 0;
  // Replaces each number by its sum over all ranks.
  virtual void sum_over_ranks(const Tensor& numbers) const = 0;
};

// ---- ops/embedding.cpp ----

// This rank's part of embedding(ids, weight of the whole vocabulary): rows of zeros where an id
// belongs to another rank. The sum over all ranks is the embedding. An id of another rank adds
// nothing to the gradient of this rank's weight. Throws if an id is not in 0 .. whole - 1.
Tensor embedding(const Tensor& ids, const Tensor& weight, VocabularyRange range);

// ---- ops/losses/linear_cross_entropy.cpp, ops/losses/divided_losses.cpp ----

// linear_cross_entropy(x, weight of the whole vocabulary, targets), from this rank's rows of the
// weight: the same loss on all ranks, with the same bits. x, targets, ignore_index and rows_at_once
// must be the same on all ranks. targets are ids of the whole vocabulary; most belong to other
// ranks.
//
// The gradient of weight is whole. The gradient of x is this rank's part: the sum over all ranks is
// the gradient.
//
// Calls of `statistics`, for each block of rows_at_once rows: max_over_ranks of [rows], then
// sum_over_ranks of [2, rows]. Three numbers a token, never logits. On a device these numbers pass
// through the host, which waits for them. For rows_at_once = 0 it is cross_entropy_rows() of the
// whole vocabulary, so that all ranks have the same blocks.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            VocabularyRange range, const RowStatistics& statistics,
                            std::int32_t ignore_index = -100, std::int64_t rows_at_once = 0);

}  // namespace ringside::autograd
