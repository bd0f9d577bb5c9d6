// Which batch is large enough, and how many devices are: the questions of the course.
//
// One feed-forward block of two matrices, forward only, on N = X Y devices: FSDP over X, tensor
// parallel over Y. Symbols: B tokens of the batch, D width, F inner width, C FLOP/s of a device, W
// bytes per second of a link, M_X and M_Y axes of a torus that carry FSDP and tensor parallel.
//
//     computing             4 B D F / (N C)
//     FSDP's all-gathers    4 D F / (Y W M_X)     2 D F numbers of two bytes, divided by Y
//     tensor parallel       4 B D / (X W M_Y)     all-gather and reduce-scatter of B D / X numbers
//
// Sources: Stanford CS336, assignment 2, communication accounting; Austin et al. 2025, How to scale
// your model, chapter 5.
#pragma once

#include "exercises/judge/planning/quantity.hpp"

namespace ringside::planning {

struct SplitInput {
  double width = 0, inner = 0;              // D, F
  double fsdp = 1, tensor = 1;              // X, Y
  double peak = 0, bandwidth = 0;           // C in FLOP/s, W in bytes per second
  double torus_fsdp = 1, torus_tensor = 1;  // M_X, M_Y
};

// The three times, for a batch of `batch` tokens over all devices.
Term split_compute_seconds(const SplitInput& input, double batch);
Term split_fsdp_seconds(const SplitInput& input);
Term split_tensor_seconds(const SplitInput& input, double batch);

// The least batch, in tokens of one device, that is bound by computing at this X and Y:
// ... if FSDP's communication, tensor parallel's and computing all overlap: their maximum counts.
// Infinite if tensor parallel alone takes longer than computing, whatever the batch.
Term tokens_if_overlapped(const SplitInput& input);
// ... if the two axes share a link and their times add up. Infinite as above.
Term tokens_if_added(const SplitInput& input);
// ... at the best X and Y for this N, where both communications take equally long. It is no bound
// for a given X and Y.
Term tokens_at_best_split(const SplitInput& input);
// That X, in general no integer.
Term best_fsdp(const SplitInput& input);
// The largest Y whose communication computing hides, whatever the batch.
Term largest_tensor(const SplitInput& input);

}  // namespace ringside::planning
