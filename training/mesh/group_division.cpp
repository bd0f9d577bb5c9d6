#include "training/mesh/group_division.hpp"

#include "parallel/tensor/linear.hpp"
#include "parallel/tensor/vocabulary.hpp"

namespace ringside::training {

using autograd::Tensor;
using autograd::VocabularyRange;
namespace tp = tensor_parallel;

namespace {

constexpr const char* label = "activations";

}  // namespace

std::vector<Tensor> GroupDivision::column(const Tensor& x, Linears layers) const {
  if (size() == 1) return TensorDivision::column(x, layers);
  std::vector<Tensor> weights;
  for (const autograd::Linear* layer : layers) weights.push_back(layer->weight);
  return divides_sequence() ? tp::column_linears_of_tokens(x, weights, group_, label)
                            : tp::column_linears(x, weights, group_, label);
}

Tensor GroupDivision::row(const Tensor& x, const autograd::Linear& layer) const {
  if (size() == 1) return TensorDivision::row(x, layer);
  return divides_sequence() ? tp::row_linear_of_tokens(x, layer.weight, {}, group_, label)
                            : tp::row_linear(x, layer.weight, {}, group_, label);
}

Tensor GroupDivision::embedding(const Tensor& ids, const Tensor& weight,
                                VocabularyRange range) const {
  if (size() == 1) return TensorDivision::embedding(ids, weight, range);
  return divides_sequence() ? tp::embedding_of_tokens(ids, weight, range.whole, group_, label)
                            : tp::embedding(ids, weight, range.whole, group_, label);
}

Tensor GroupDivision::cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                    VocabularyRange range) const {
  if (size() == 1) return TensorDivision::cross_entropy(x, weight, targets, range);
  constexpr const char* head = "rows of logits";
  return divides_sequence()
             ? tp::cross_entropy_of_tokens(x, weight, targets, range.whole, group_, head)
             : tp::cross_entropy(x, weight, targets, range.whole, group_, head);
}

}  // namespace ringside::training
