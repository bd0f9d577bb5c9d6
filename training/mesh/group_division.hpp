// GroupDivision: the matrices of a model divided over a process group, as the model asks for it
// (transformer/tensor_division.hpp), with the layers of parallel/tensor/.
// Hooks of single linear layers do not run: they have one f together.
#pragma once

#include "collectives/process_group.hpp"
#include "parallel/tensor/vocabulary.hpp"
#include "transformer/tensor_division.hpp"

namespace ringside::training {

class GroupDivision final : public transformer::TensorDivision {
 public:
  // `group` must outlive this object and every backward through it.
  GroupDivision(collectives::ProcessGroup& group, bool divide_sequence)
      : group_(group), divide_sequence_(divide_sequence) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  std::vector<autograd::Tensor> column(const autograd::Tensor& x, Linears layers) const override;
  autograd::Tensor row(const autograd::Tensor& x, const autograd::Linear& layer) const override;
  autograd::Tensor embedding(const autograd::Tensor& ids, const autograd::Tensor& weight,
                             autograd::VocabularyRange range) const override;
  autograd::Tensor cross_entropy(const autograd::Tensor& x, const autograd::Tensor& weight,
                                 const autograd::Tensor& targets,
                                 autograd::VocabularyRange range) const override;
  bool divides_sequence() const override { return divide_sequence_ && size() > 1; }

 private:
  tensor_parallel::Tokens tokens() const {
    return divides_sequence() ? tensor_parallel::Tokens::own : tensor_parallel::Tokens::all;
  }

  collectives::ProcessGroup& group_;
  bool divide_sequence_;
};

}  // namespace ringside::training
