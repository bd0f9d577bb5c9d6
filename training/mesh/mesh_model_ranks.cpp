#include "training/mesh/mesh_model_ranks.hpp"

#include "autograd/ops/ops.hpp"
#include "base/system/shared_library.hpp"
#include "ddp/tensor_collectives.hpp"
#include "parallel/context/attention.hpp"
#include "parallel/experts/dispatch.hpp"

namespace ringside::training {

using autograd::Tensor;
using autograd::VocabularyRange;
namespace tp = tensor_parallel;

namespace {

constexpr const char* label = "activations";

}  // namespace

TensorFunctions find_tensor_functions(const std::string& library) {
  if (library.empty()) return {};
  return *variable_of_library<const TensorFunctions*>("tensor parallel functions", library,
                                                      "ringside_tensor_functions",
                                                      "training/mesh/mesh_model_ranks.hpp");
}

std::vector<Tensor> MeshModelRanks::column(const Tensor& x, Linears layers) const {
  if (size() == 1) return ModelRanks::column(x, layers);
  // One f for all: in backward one call carries the sum of what the layers say about x.
  const Tensor entered = divides_sequence() ? parallel::gather_sequence(x, group_, label)
                                            : functions_.copy_to_group(x, group_, label);
  std::vector<Tensor> outputs;
  for (const autograd::Linear* layer : layers) outputs.push_back(linear(entered, layer->weight));
  return outputs;
}

Tensor MeshModelRanks::row(const Tensor& x, const autograd::Linear& layer) const {
  if (size() == 1) return ModelRanks::row(x, layer);
  return divides_sequence() ? tp::row_linear_of_tokens(x, layer.weight, {}, group_, label)
                            : functions_.row_linear(x, layer.weight, {}, group_, label);
}

Tensor MeshModelRanks::embedding(const Tensor& ids, const Tensor& weight,
                                 VocabularyRange range) const {
  if (size() == 1) return ModelRanks::embedding(ids, weight, range);
  return tp::embedding(ids, weight, range.whole, group_, label, tokens());
}

Tensor MeshModelRanks::cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                     VocabularyRange range) const {
  if (size() == 1) return ModelRanks::cross_entropy(x, weight, targets, range);
  return tp::cross_entropy(x, weight, targets, range.whole, group_, "rows of logits", tokens());
}

Tensor MeshModelRanks::attention(const Tensor& q, const Tensor& k, const Tensor& v) const {
  if (!divides_context()) return ModelRanks::attention(q, k, v);
  return context_parallel::attention(q, k, v, context_, context_group_);
}

// f and g of tensor parallel stand around the experts of this rank: its tensor ranks have the same
// rows, and a part of every matrix.
Tensor MeshModelRanks::experts(const Tensor& rows, std::span<const std::int64_t> counts,
                               const ComputeExperts& compute) const {
  return expert_parallel::run_experts(
      rows, counts,
      [&](const Tensor& here, std::span<const std::int64_t> counts_here) {
        return parallel::reduce_from_group(
            compute(parallel::copy_to_group(here, group_, label), counts_here), group_, label);
      },
      expert_group_);
}

void MeshModelRanks::add_over_sequences(const Tensor& numbers) const {
  if (divides_context())
    ddp::all_reduce_sum(numbers, numbers, context_group_, "tokens of each expert");
}

autograd::RopeTable MeshModelRanks::positions(const autograd::RopeTable& table,
                                              std::int64_t tokens) const {
  if (!divides_context()) return table;
  autograd::RopeTable& own = positions_[tokens];
  if (own.cos.defined()) return own;
  const int ranks = context_group_.size();
  const std::int64_t length = tokens * ranks / context_parallel::piece_count(context_.order, ranks);
  for (const auto& [part, whole] :
       {std::pair(&own.cos, &table.cos), std::pair(&own.sin, &table.sin)}) {
    *part = Tensor::empty({tokens, whole->size(1)}, whole->dtype(), whole->device());
    std::int64_t begin = 0;
    for (const int piece :
         context_parallel::pieces_of(context_.order, ranks, context_group_.rank())) {
      part->narrow(0, begin, length).copy_(whole->narrow(0, piece * length, length));
      begin += length;
    }
  }
  return own;
}

}  // namespace ringside::training
