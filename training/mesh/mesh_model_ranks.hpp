// MeshModelRanks: the matrices of a model divided over one process group, the tokens of its
// sequences over another and its experts over a third, as the model asks for it
// (transformer/model_ranks.hpp), with the layers of parallel/tensor/, the attention of
// parallel/context/ and the exchange of parallel/experts/.
// Hooks of single linear layers do not run: they have one f together.
#pragma once

#include <map>
#include <string>

#include "collectives/process_group.hpp"
#include "parallel/context/order.hpp"
#include "parallel/differentiable.hpp"
#include "parallel/tensor/linear.hpp"
#include "parallel/tensor/vocabulary.hpp"
#include "transformer/model_ranks.hpp"

namespace ringside::training {

// The functions with which matrices are divided, of parallel/tensor/ or of a shared library:
//
//     const training::TensorFunctions mine{.copy_to_group = ..., .row_linear = ...};
//     extern "C" const training::TensorFunctions* const ringside_tensor_functions = &mine;
//
//     ringside train -n 4 --mesh dp=2,tp=2 --tensor-parallel ./mine.so
struct TensorFunctions {
  decltype(&parallel::copy_to_group) copy_to_group = parallel::copy_to_group;
  decltype(&tensor_parallel::row_linear) row_linear = tensor_parallel::row_linear;
};

// Those of this library; "" has ours. Throws Error if it cannot be loaded or has none.
TensorFunctions find_tensor_functions(const std::string& library);

class MeshModelRanks final : public transformer::ModelRanks {
 public:
  // The groups must outlive this object and every backward through it.
  MeshModelRanks(collectives::ProcessGroup& group, bool divide_sequence,
                 collectives::ProcessGroup& context_group,
                 const context_parallel::ContextOptions& context,
                 collectives::ProcessGroup& expert_group, const TensorFunctions& functions = {})
      : functions_(functions),
        group_(group),
        divide_sequence_(divide_sequence),
        context_group_(context_group),
        context_(context),
        expert_group_(expert_group) {}

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
  int expert_rank() const override { return expert_group_.rank(); }
  int expert_ranks() const override { return expert_group_.size(); }
  autograd::Tensor experts(const autograd::Tensor& rows, std::span<const std::int64_t> counts,
                           const ComputeExperts& compute) const override;
  void add_over_sequences(const autograd::Tensor& numbers) const override;
  bool divides_context() const override { return context_group_.size() > 1; }
  bool divides_sequence() const override { return divide_sequence_ && size() > 1; }

 private:
  tensor_parallel::Tokens tokens() const {
    return divides_sequence() ? tensor_parallel::Tokens::own : tensor_parallel::Tokens::all;
  }

  TensorFunctions functions_;
  collectives::ProcessGroup& group_;
  bool divide_sequence_;
  collectives::ProcessGroup& context_group_;
  context_parallel::ContextOptions context_;
  collectives::ProcessGroup& expert_group_;
  // [tokens]: the rows of the table for so many tokens of this rank. All layers share them.
  mutable std::map<std::int64_t, autograd::RopeTable> positions_;
};

}  // namespace ringside::training
