// Which activations to keep: inputs of groups, of halves of halves, and the choice within a block.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "exercises/31-gradient-checkpointing/blocks.hpp"

namespace ringside::recomputation {

// The blocks one after the other; every `k` of them are one checkpoint, and so is the rest.
// `blocks` and `checkpoint` live until backward has ended. (Chen et al., 2016, section 4.1)
inline Tensor in_groups(std::span<const Block> blocks, std::size_t k, const Tensor& x,
                        const Checkpoint& checkpoint) {
  Tensor y = x;
  for (std::size_t begin = 0; begin < blocks.size(); begin += k) {
    const auto group = blocks.subspan(begin, std::min(k, blocks.size() - begin));
    y = checkpoint([group](const Tensor& input) { return through(group, input); }, y);
  }
  return y;
}

// The blocks one after the other, so that backward keeps the activations of one block and the
// inputs of about log2 of them. `blocks` and `checkpoint` live until backward has ended. (Chen et
// al., 2016, section 4.4)
inline Tensor nested(std::span<const Block> blocks, const Tensor& x, const Checkpoint& checkpoint) {
  if (blocks.size() == 1) return blocks[0](x);
  const auto first = blocks.first(blocks.size() / 2), second = blocks.subspan(first.size());
  const auto first_half = [first, &checkpoint](const Tensor& input) {
    return nested(first, input, checkpoint);
  };
  return nested(second, checkpoint(first_half, x), checkpoint);
}

// The size of the groups with which memory is smallest: an input of `input` bytes for each group,
// and `saved` bytes for each block of one group.
inline std::int64_t best_group(std::int64_t blocks, std::int64_t input, std::int64_t saved) {
  const auto memory = [=](std::int64_t k) { return (blocks + k - 1) / k * input + k * saved; };
  std::int64_t best = 1;
  for (std::int64_t k = 2; k <= blocks; ++k)
    if (memory(k) < memory(best)) best = k;
  return best;
}

// The indices of the activations to keep: at most `budget` bytes, and the fewest FLOPs for all
// others. At most 16 activations.
inline std::vector<std::size_t> kept(std::span<const Activation> activations, std::int64_t budget) {
  std::size_t best = 0;
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  for (std::size_t choice = 0; choice < (std::size_t{1} << activations.size()); ++choice) {
    std::int64_t bytes = 0, flops = 0;
    for (std::size_t i = 0; i < activations.size(); ++i)
      (choice >> i & 1 ? bytes : flops) +=
          choice >> i & 1 ? activations[i].bytes : activations[i].flops;
    if (bytes <= budget && flops < fewest) best = choice, fewest = flops;
  }
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < activations.size(); ++i)
    if (best >> i & 1) indices.push_back(i);
  return indices;
}

}  // namespace ringside::recomputation
