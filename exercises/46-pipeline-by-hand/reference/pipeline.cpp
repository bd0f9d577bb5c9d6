// Pipeline parallelism by hand: each rank has one layer, its stage. The batch goes through the
// stages in micro-batches, and gradients come back.
#include <vector>

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/tensor/layout.hpp"
#include "collectives/process_group.hpp"

namespace ringside::pipeline_by_hand {

using namespace autograd;
using collectives::ProcessGroup;

}  // namespace ringside::pipeline_by_hand
