#include "parallel/experts/dispatch.hpp"

#include <algorithm>
#include <numeric>

#include "autograd/ops/ops.hpp"
#include "base/error.hpp"

namespace ringside::expert_parallel {

using collectives::ProcessGroup;

Dispatch plan_dispatch(const std::vector<std::vector<std::int64_t>>& matrix,
                       std::vector<std::int64_t> sent) {
  const std::size_t experts = matrix.front().size();
  Dispatch dispatch{{std::move(sent), {}}, std::vector<std::int64_t>(experts), {}, {}};
  for (const auto& of_rank : matrix) {
    dispatch.rows.received.push_back(
        std::accumulate(of_rank.begin(), of_rank.end(), std::int64_t{0}));
    for (std::size_t e = 0; e < experts; ++e) dispatch.counts[e] += of_rank[e];
  }
  const std::int64_t total =
      std::accumulate(dispatch.counts.begin(), dispatch.counts.end(), std::int64_t{0});
  dispatch.sorted = Tensor::empty({total}, autograd::DType::int32);
  dispatch.arrived = Tensor::empty({total}, autograd::DType::int32);
  // The next row of each expert. Of one expert, the rows of earlier ranks come first.
  std::vector<std::int64_t> next(experts);
  std::exclusive_scan(dispatch.counts.begin(), dispatch.counts.end(), next.begin(),
                      std::int64_t{0});
  std::int32_t row = 0;
  for (const auto& of_rank : matrix)
    for (std::size_t e = 0; e < experts; ++e)
      for (std::int64_t i = 0; i < of_rank[e]; ++i, ++row) {
        dispatch.arrived.data<std::int32_t>()[row] = static_cast<std::int32_t>(next[e]);
        dispatch.sorted.data<std::int32_t>()[next[e]++] = row;
      }
  return dispatch;
}

namespace {

// Every rank tells the others how many rows it has for each of their experts.
Dispatch exchange_counts(std::span<const std::int64_t> counts, ProcessGroup& group) {
  const auto ranks = static_cast<std::size_t>(group.size());
  require(counts.size() % ranks == 0, "{} experts cannot be divided evenly among {} ranks",
          counts.size(), ranks);
  const std::size_t each = counts.size() / ranks;
  std::vector<std::int64_t> received(counts.size());
  group.all_to_all(counts, std::span(received), "tokens of each expert");
  std::vector<std::int64_t> sent;
  std::vector<std::vector<std::int64_t>> matrix;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto mine = counts.subspan(r * each, each);
    sent.push_back(std::accumulate(mine.begin(), mine.end(), std::int64_t{0}));
    matrix.emplace_back(received.begin() + static_cast<std::ptrdiff_t>(r * each),
                        received.begin() + static_cast<std::ptrdiff_t>((r + 1) * each));
  }
  return plan_dispatch(matrix, std::move(sent));
}

}  // namespace

Tensor run_experts(const Tensor& rows, std::span<const std::int64_t> counts, const Compute& compute,
                   ProcessGroup& group) {
  if (group.size() == 1) return compute(rows, counts);
  const Dispatch dispatch = exchange_counts(counts, group);
  const Tensor arrived = parallel::exchange_rows(rows, dispatch.rows, group, "tokens for experts");
  const Tensor outputs = compute(autograd::embedding(dispatch.sorted, arrived), dispatch.counts);
  return parallel::exchange_rows(autograd::embedding(dispatch.arrived, outputs),
                                 {dispatch.rows.received, dispatch.rows.sent}, group,
                                 "outputs of experts");
}

}  // namespace ringside::expert_parallel
