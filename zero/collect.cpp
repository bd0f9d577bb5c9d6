#include "zero/collect.hpp"

#include "ddp/tensor_collectives.hpp"

namespace ringside::zero {

using autograd::Tensor;

Tensor view_of_range(const Tensor& whole, const ShardRange& range) {
  return Tensor::view_of(whole.storage(), whole.offset() + range.begin, {range.count},
                         whole.dtype());
}

Tensor collect(const Tensor& mine, const std::vector<ShardRange>& ranges, autograd::Shape shape,
               autograd::DType dtype, collectives::ProcessGroup& group, std::string_view label) {
  const autograd::MemoryScope buffer(autograd::MemoryKind::communication);
  const bool at_root = group.rank() == 0;
  const Tensor whole = at_root ? Tensor::empty(std::move(shape), dtype) : Tensor();
  for (int rank = 0; rank < group.size(); ++rank) {
    const ShardRange& range = ranges[static_cast<std::size_t>(rank)];
    if (range.count == 0) continue;
    if (at_root && rank == 0)
      view_of_range(whole, range).copy_(mine.reshape({range.count}));
    else if (at_root)
      group.recv(ddp::buffer_of(view_of_range(whole, range), label), rank, label);
    else if (rank == group.rank())
      group.send(ddp::buffer_of(mine.to(autograd::Device::cpu), label), 0, label);
  }
  return whole;
}

}  // namespace ringside::zero
