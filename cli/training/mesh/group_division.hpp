// GroupDivision: the matrices of a model divided over a process group, as the model asks for it
// (transformer/tensor_division.hpp), with the functions of parallel/differentiable.hpp.
#pragma once

#include "collectives/process_group.hpp"
#include "tensor_parallel/vocabulary.hpp"
#include "transformer/tensor_division.hpp"

namespace ringside::cli {

class GroupDivision final : public transformer::TensorDivision {
 public:
  // `group` must outlive this object and every backward through it.
  GroupDivision(collectives::ProcessGroup& group, bool divide_sequence)
      : group_(group), divide_sequence_(divide_sequence), statistics_(group, "rows of logits") {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  autograd::Tensor enter(const autograd::Tensor& x) const override;
  autograd::Tensor leave(const autograd::Tensor& partial) const override;
  const autograd::RowStatistics* row_statistics() const override { return &statistics_; }
  bool divides_sequence() const override { return divide_sequence_ && size() > 1; }

 private:
  collectives::ProcessGroup& group_;
  bool divide_sequence_;
  tensor_parallel::GroupStatistics statistics_;
};

}  // namespace ringside::cli
