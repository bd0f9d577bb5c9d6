// GroupDivision: the matrices of a model divided over one process group and the tokens of its
// sequences over another, as the model asks for it (transformer/tensor_division.hpp), with the
// layers of parallel/tensor/ and the attention of parallel/context/.
// Hooks of single linear layers do not run: they have one f together.
#pragma once

#include <map>

#include "collectives/process_group.hpp"
#include "parallel/context/order.hpp"
#include "parallel/tensor/vocabulary.hpp"
#include "transformer/tensor_division.hpp"

namespace ringside::training {

class GroupDivision final : public transformer::TensorDivision {
 public:
  // The groups must outlive this object and every backward through it.
  GroupDivision(collectives::ProcessGroup& group, bool divide_sequence,
                collectives::ProcessGroup& context_group,
                const context_parallel::ContextOptions& context)
      : group_(group),
        divide_sequence_(divide_sequence),
        context_group_(context_group),
        context_(context) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  std::vector<autograd::Tensor> column(const autograd::Tensor& x, Linears layers) const override;
  autograd::Tensor row(const autograd::Tensor& x, const autograd::Linear& layer) const override;
  autograd::Tensor embedding(const autograd::Tensor& ids, const autograd::Tensor& weight,
                             autograd::VocabularyRange range) const override;
  autograd::Tensor cross_entropy(const autograd::Tensor& x, const autograd::Tensor& weight,
                                 const autograd::Tensor& targets,
                                 autograd::VocabularyRange range) const override;
  autograd::Tensor attention(const autograd::Tensor& q, const autograd::Tensor& k,
                             const autograd::Tensor& v) const override;
  autograd::RopeTable positions(const autograd::RopeTable& table,
                                std::int64_t tokens) const override;
  bool divides_context() const override { return context_group_.size() > 1; }
  bool divides_sequence() const override { return divide_sequence_ && size() > 1; }

 private:
  tensor_parallel::Tokens tokens() const {
    return divides_sequence() ? tensor_parallel::Tokens::own : tensor_parallel::Tokens::all;
  }

  collectives::ProcessGroup& group_;
  bool divide_sequence_;
  collectives::ProcessGroup& context_group_;
  context_parallel::ContextOptions context_;
  // [tokens]: the rows of the table for so many tokens of this rank. All layers share them.
  mutable std::map<std::int64_t, autograd::RopeTable> positions_;
};

}  // namespace ringside::training
