// One step of a BlockNet under a student's stage 3, as it is seen from outside.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exercises/judge/judge.hpp"
#include "exercises/judge/zero/block_net.hpp"

namespace ringside::exercises {

// What the step asks of the student's method.
struct ShardedStep {
  std::function<void()> finish;
  std::function<void()> destroy;  // ends its calls, also those that nobody waits for
};

// {"events": [{"what": "forward of embed", "in memory": names}], "calls": [{"call", "bytes"}],
// "error": of the step, or "", "sent": bytes, "peak": bytes of parameters, "peak of all": bytes of
// all kinds}. Forward and backward reach each layer in an event. Which units are in memory, the
// storages of the net's parameters tell.
Json step_of_block_net(World& world, BlockNet::Options options, BlockNet& net,
                       const ShardedStep& method);

}  // namespace ringside::exercises
