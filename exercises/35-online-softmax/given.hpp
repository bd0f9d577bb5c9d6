// What a thread knows of the logits that it has seen.
#pragma once

#include "exercises/judge/gpu/gpu.hpp"

namespace ringside::gpu {

struct Softmax {
  float largest = -infinity;  // of no logit
  float total = 0;            // the sum of exp(z - largest)
};

}  // namespace ringside::gpu
