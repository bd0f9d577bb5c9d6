// How much memory training takes, told before any of it is asked for.
#pragma once

#include <algorithm>

#include "autograd/tensor/dtype.hpp"
#include "transformer/config.hpp"
#include "transformer/trainer.hpp"

namespace ringside::transformer {

// Bytes of one rank. In doubles: sizes that a file may ask for do not fit anything else.
struct MemoryNeed {
  double parameters = 0, gradients = 0, optimizer = 0;
  double activations = 0;  // of one micro-batch, at the moment when there are most: all of the
                           // forward pass, and backward at the head
  double at_first = 0;     // the whole model, before a form shares it out
  double total() const {
    return std::max(at_first, parameters + gradients + optimizer + activations);
  }
};

// What a rank holds under a parallel form, as shares of all.
struct Held {
  double parameters = 1, gradients = 1, optimizer = 1;
  double bucket_bytes = 0;  // besides, buckets of gradients are whole on their way: so many under
                            // way, one that is filled, which may be as
  double buckets_under_way =
      0;  // large as the largest parameter, and beside it that one's own gradient
  bool whole_units = false;  // besides, units (a block; the embedding; norm and head) are whole
                             // while they are used: two of parameters; of gradients one, with
                             // backward's own gradient beside it, and two blocks that are under way
};

// An estimate, some per cent too high: a test holds it against what is counted.
MemoryNeed memory_needed(const Config& config, const TrainerOptions& options, autograd::DType dtype,
                         int ranks, const Held& held = {});

// What evaluate() takes for so many sequences of such a length at once, if it keeps the logits of
// `kept_logits` tokens; and generate() for so many tokens to begin with, with its past.
MemoryNeed memory_needed_to_evaluate(const Config& config, autograd::DType dtype, double sequences,
                                     double length, bool gradients, double kept_logits = 0);
MemoryNeed memory_needed_to_generate(const Config& config, autograd::DType dtype, double tokens);

// The parameters alone: what using a model takes at least.
double parameter_bytes(const Config& config, autograd::DType dtype);

}  // namespace ringside::transformer
