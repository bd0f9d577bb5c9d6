#include "zero/held_shards.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "zero/collect.hpp"

namespace ringside::zero {

using autograd::NamedTensor;
using autograd::Tensor;
using collectives::DataType;

HeldShards::HeldShards(Shards own, Shards copy, int rank, int ranks, std::int64_t steps,
                       bool can_update, std::int64_t stamp)
    : own_(std::move(own)),
      copy_(std::move(copy)),
      info_{rank, ranks, steps, can_update ? 1 : 0, stamp} {}

std::int64_t HeldShards::meet(collectives::ProcessGroup& group) {
  constexpr std::size_t numbers = sizeof(Info) / sizeof(std::int64_t);
  std::vector<Info> all(static_cast<std::size_t>(group.size()));
  group.all_gather(
      {reinterpret_cast<const std::int64_t*>(&info_), numbers, DataType::int64},
      {reinterpret_cast<std::int64_t*>(all.data()), numbers * all.size(), DataType::int64},
      "held shards");
  std::erase_if(all, [](const Info& each) { return each.ranks == 0; });
  require(!all.empty(), "no rank holds a shard");
  const std::int64_t ranks = all.front().ranks;
  const auto is_here = [&](std::int64_t rank) {
    return std::any_of(all.begin(), all.end(), [&](const Info& each) { return each.rank == rank; });
  };
  bool complete = true;
  std::int64_t newest = 0;
  for (const Info& each : all) {
    newest = std::max(newest, each.steps);
    complete = complete && each.stamp == all.front().stamp;
  }
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    complete = complete && (is_here(rank) || is_here((rank + 1) % ranks));
  for (const Info& each : all)
    complete = complete && (each.steps == newest || (each.steps + 1 == newest && each.can_update));
  require(complete,
          "{} of {} ranks are left, and they do not hold all shards: two ranks that hold the same "
          "shard are lost at once; go on from the last checkpoint, with --resume",
          all.size(), ranks);
  shows_copy_ = !empty() && !is_here((info_.rank + ranks - 1) % ranks);
  if (!empty() && info_.steps < newest) {
    for (const Shards* shards : {&own_, &copy_})
      if (shards->optimizer) shards->optimizer->step();
    info_.steps = newest;
    info_.can_update = 0;
  }
  return newest;
}

void HeldShards::fill(const NamedTensor& whole, collectives::ProcessGroup& group) const {
  const auto bytes =
      static_cast<std::size_t>(whole.tensor.elements()) * autograd::size_of(whole.tensor.dtype());
  std::fill_n(whole.tensor.address(), bytes, std::byte{0});
  for (const Shards* shards : {&own_, &copy_})
    if (shards == &own_ || shows_copy_)
      for (const Piece& piece : shards->pieces)
        if (piece.name == whole.name) view_of_range(whole.tensor, piece.range).copy_(piece.values);
  // Of each element one rank has the bits, or several the same; the others have zeros.
  group.all_reduce({whole.tensor.address(), bytes, DataType::uint8}, collectives::ReduceOp::bit_or,
                   whole.name);
}

}  // namespace ringside::zero
