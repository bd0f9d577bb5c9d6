#include "parallel/experts/exchange_rows.hpp"

#include <numeric>

#include "autograd/engine/node.hpp"
#include "base/error.hpp"
#include "ddp/tensor_collectives.hpp"

namespace ringside::parallel {

using autograd::Gradients;
using autograd::Node;
using autograd::Tensor;
using collectives::ProcessGroup;

namespace {

// Rows of x for each rank -> the rows from each rank, in new memory.
Tensor exchange_blocks(const Tensor& x_any_strides, const RowCounts& counts, ProcessGroup& group,
                       std::string_view label) {
  const Tensor x = x_any_strides.contiguous();
  const std::int64_t n = x.size(1);
  const auto elements = [n](const std::vector<std::int64_t>& rows) {
    std::vector<std::size_t> each;
    for (const std::int64_t r : rows) each.push_back(static_cast<std::size_t>(r * n));
    return each;
  };
  const std::int64_t arriving =
      std::accumulate(counts.received.begin(), counts.received.end(), std::int64_t{0});
  const Tensor y = Tensor::empty({arriving, n}, x.dtype(), x.device());
  const auto sent = elements(counts.sent), received = elements(counts.received);
  group.all_to_all({ddp::buffer_of(x, label), sent}, {ddp::buffer_of(y, label), received}, label);
  return y;
}

}  // namespace

Tensor exchange_rows(const Tensor& x, const RowCounts& counts, ProcessGroup& group,
                     std::string_view label) {
  const auto ranks = static_cast<std::size_t>(group.size());
  require(x.dim() == 2 && counts.sent.size() == ranks && counts.received.size() == ranks &&
              std::accumulate(counts.sent.begin(), counts.sent.end(), std::int64_t{0}) == x.size(0),
          "exchange_rows: expected {} [rows, n] and counts for {} ranks whose sum is the number of "
          "rows, got {} and {} counts",
          label, ranks, x.shape(), counts.sent.size());
  if (group.size() == 1) return x;
  return record(
      "exchange_rows", exchange_blocks(x.detach(), counts, group, label), {x},
      [&group, back = RowCounts{counts.received, counts.sent},
       label = fmt::format("gradient of {}", label)](const Node&, const Tensor& dy) -> Gradients {
        return {exchange_blocks(dy, back, group, label)};
      });
}

}  // namespace ringside::parallel
