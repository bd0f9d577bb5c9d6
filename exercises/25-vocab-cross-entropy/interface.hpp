// What the judge calls: the losses of a block of logits whose columns are divided.
#pragma once

#include "autograd/ops/losses/divided_losses.hpp"
#include "exercises/judge/student.hpp"

namespace ringside::exercises {

// Targets with ids of the whole vocabulary, as this rank sees them.
inline Student<autograd::Tensor(const autograd::Tensor& targets, autograd::VocabularyRange range,
                                std::int64_t columns, std::int32_t ignore_index)>
    student_targets;
// Writes the losses, and dz over z.
inline Student<void(const autograd::Tensor& z, const autograd::Tensor& targets, double weight,
                    const autograd::RowStatistics& statistics, const autograd::Tensor& losses)>
    student_losses;

}  // namespace ringside::exercises
