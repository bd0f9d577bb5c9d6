// What the judge calls: a checkpoint, two ways to place checkpoints, and two choices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exercises/31-gradient-checkpointing/blocks.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

using autograd::Tensor;
using recomputation::Activation;
using recomputation::Block;
using recomputation::Checkpoint;

using Blocks = std::span<const Block>;

inline Student<Tensor(Block block, const Tensor& x)> student_checkpoint;
inline Student<Tensor(Blocks blocks, std::size_t k, const Tensor& x, const Checkpoint& checkpoint)>
    student_in_groups;
inline Student<Tensor(Blocks blocks, const Tensor& x, const Checkpoint& checkpoint)> student_nested;
inline Student<std::int64_t(std::int64_t blocks, std::int64_t input, std::int64_t saved)>
    student_best_group;
inline Student<std::vector<std::size_t>(std::span<const Activation> activations,
                                        std::int64_t budget)>
    student_kept;

}  // namespace ringside::exercises
