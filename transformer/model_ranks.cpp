#include "transformer/model_ranks.hpp"

#include "autograd/ops/ops.hpp"

namespace ringside::transformer {

using autograd::Tensor;
using autograd::VocabularyRange;

std::vector<Tensor> ModelRanks::column(const Tensor& x, Linears layers) const {
  std::vector<Tensor> outputs;
  for (const autograd::Linear* layer : layers) outputs.push_back(layer->forward(x));
  return outputs;
}

Tensor ModelRanks::row(const Tensor& x, const autograd::Linear& layer) const {
  return layer.forward(x);
}

Tensor ModelRanks::embedding(const Tensor& ids, const Tensor& weight, VocabularyRange) const {
  return autograd::embedding(ids, weight);
}

Tensor ModelRanks::cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                 VocabularyRange) const {
  return autograd::linear_cross_entropy(x, weight, targets);
}

Tensor ModelRanks::attention(const Tensor& q, const Tensor& k, const Tensor& v) const {
  return autograd::causal_attention(q, k, v);
}

Tensor ModelRanks::experts(const Tensor& rows, std::span<const std::int64_t> counts,
                           const ComputeExperts& compute) const {
  return compute(rows, counts);
}

autograd::RopeTable ModelRanks::positions(const autograd::RopeTable& table, std::int64_t) const {
  return table;
}

}  // namespace ringside::transformer
