// The two matrices that are divided by vocabulary: the embedding and the head.
//
//     V = 7 over 3 ranks      rank 0: rows 0 1 2      rank 1: rows 3 4      rank 2: rows 5 6
//
// The vocabulary is not padded: a padded row would have logits, and the softmax would count them.
// Each rank calls these functions with its own rows of the matrix, and with all ids or targets.
#pragma once

#include <string>
#include <string_view>

#include "autograd/ops/vocabulary.hpp"
#include "autograd/tensor/tensor.hpp"
#include "collectives/process_group.hpp"

namespace ringside::tensor_parallel {

// The rows that this rank holds. Throws Error if there are more ranks than rows.
autograd::VocabularyRange vocabulary_range(std::int64_t vocabulary,
                                           const collectives::ProcessGroup& group);

// Joins the statistics of rows of logits with all-reduces over `group`, which must outlive it.
class GroupStatistics final : public autograd::RowStatistics {
 public:
  GroupStatistics(collectives::ProcessGroup& group, std::string_view label)
      : group_(group), label_(label) {}
  void max_over_ranks(const autograd::Tensor& numbers) const override;
  void sum_over_ranks(const autograd::Tensor& numbers) const override;

 private:
  collectives::ProcessGroup& group_;
  std::string label_;
};

// Which tokens each rank holds between the two ends of the model: all of them, or with sequence
// parallel its own T/t.
enum class Tokens { all, own };

// ids int32 [B, T], weight [V_r, d] -> [B, T, d], the same on all ranks, or [B, T/t, d]. Every id
// has its row on one rank, the others contribute zeros, and the sum is the embedding. One
// all-reduce in forward, no call in backward; or a reduce-scatter in forward, an all-gather in
// backward.
autograd::Tensor embedding(const autograd::Tensor& ids, const autograd::Tensor& weight,
                           std::int64_t vocabulary, collectives::ProcessGroup& group,
                           std::string_view label, Tokens tokens = Tokens::all);

// Head and loss: x [B, T, d], the same on all ranks, or [B, T/t, d]; weight [V_r, d]; targets int32
// [B, T], always of all tokens -> the mean of -log softmax(x W^T)[target], with the same bits on
// all ranks. Forward: an all-reduce of one number a token (max), and one of two (sum), for each
// block of rows (autograd/ops/vocabulary.hpp). Backward: one all-reduce of dx. With own tokens
// forward begins with an all-gather of x, and backward ends with a reduce-scatter of dx.
autograd::Tensor cross_entropy(const autograd::Tensor& x, const autograd::Tensor& weight,
                               const autograd::Tensor& targets, std::int64_t vocabulary,
                               collectives::ProcessGroup& group, std::string_view label,
                               Tokens tokens = Tokens::all, std::int32_t ignore_index = -100,
                               std::int64_t rows_at_once = 0);

}  // namespace ringside::tensor_parallel
