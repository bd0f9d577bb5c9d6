// How a rank that has just come, or has missed a step, gets what the others hold.
#pragma once

#include "collectives/process_group.hpp"
#include "training/trainer.hpp"

namespace ringside::training {

// After Trainer::change_strategy(), which has sent rank 0's parameters: all ranks get rank 0's
// number of steps, and the state of its optimizer, unless all have taken equally many. `is_new` is
// whether this rank has come without a state. Every rank must call it.
void share_state(Trainer& trainer, collectives::ProcessGroup& group, bool is_new);

}  // namespace ringside::training
