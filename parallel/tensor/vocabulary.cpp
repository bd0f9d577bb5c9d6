#include "parallel/tensor/vocabulary.hpp"

#include "base/error.hpp"
#include "ddp/tensor_collectives.hpp"
#include "parallel/differentiable.hpp"

namespace ringside::tensor_parallel {

using autograd::Tensor;
using autograd::VocabularyRange;
using collectives::ProcessGroup;
using parallel::copy_to_group;
using parallel::gather_sequence;
using parallel::reduce_from_group;
using parallel::scatter_sequence;

VocabularyRange vocabulary_range(std::int64_t vocabulary, const ProcessGroup& group) {
  require(vocabulary >= group.size(),
          "a vocabulary of {} cannot be divided among {} ranks: take at most {} ranks", vocabulary,
          group.size(), vocabulary);
  const auto rows = static_cast<std::size_t>(vocabulary);
  return {static_cast<std::int64_t>(group.block_begin(rows, group.rank())), vocabulary};
}

void GroupStatistics::max_over_ranks(const Tensor& numbers) const {
  ddp::all_reduce_max(numbers, numbers, group_, fmt::format("max of {}", label_));
}

void GroupStatistics::sum_over_ranks(const Tensor& numbers) const {
  ddp::all_reduce_sum(numbers, numbers, group_, fmt::format("sums of {}", label_));
}

Tensor embedding(const Tensor& ids, const Tensor& weight, std::int64_t vocabulary,
                 ProcessGroup& group, std::string_view label, Tokens tokens) {
  const Tensor own = autograd::embedding(ids, weight, vocabulary_range(vocabulary, group));
  if (tokens == Tokens::own) return scatter_sequence(own, group, label);
  return reduce_from_group(own, group, label);
}

Tensor cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                     std::int64_t vocabulary, ProcessGroup& group, std::string_view label,
                     Tokens tokens, std::int32_t ignore_index, std::int64_t rows_at_once) {
  const Tensor all =
      tokens == Tokens::all ? copy_to_group(x, group, label) : gather_sequence(x, group, label);
  return autograd::linear_cross_entropy(all, weight, targets, vocabulary_range(vocabulary, group),
                                        GroupStatistics(group, label), ignore_index, rows_at_once);
}

}  // namespace ringside::tensor_parallel
