#include "training/elastic/share_state.hpp"

#include <array>
#include <cstdint>
#include <span>

#include "ddp/tensor_collectives.hpp"

namespace ringside::training {

using collectives::ReduceOp;

void share_state(Trainer& trainer, collectives::ProcessGroup& group, bool is_new) {
  std::array<std::int64_t, 1> steps{trainer.steps_taken()};
  group.broadcast(std::span(steps), 0, "steps taken");
  std::array<std::int64_t, 1> lacks_state{is_new || steps[0] != trainer.steps_taken()};
  group.all_reduce(std::span(lacks_state), ReduceOp::max, "ranks without the state");
  if (lacks_state[0] == 0) return;
  for (const auto& [name, tensor] : trainer.optimizer().state())
    ddp::broadcast(tensor, 0, group, name);
  trainer.set_steps_taken(steps[0]);
}

}  // namespace ringside::training
