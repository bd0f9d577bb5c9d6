// Tensor parallelism as in the lecture: each rank has the whole batch and some rows of every
// matrix.
//
// Activations are [features, batch]: the features of a rank lie together in memory. A layer is
// y = gelu(W x) or y = W x, with W [out, in]. All calls are blocking, and in the same order on all
// ranks.
#include <ranges>
#include <vector>

#include "autograd/engine/engine.hpp"
#include "autograd/ops/ops.hpp"
#include "ddp/tensor_collectives.hpp"
#include "parallel/tensor/linear.hpp"

namespace ringside::column_gather {

using namespace autograd;
using collectives::ProcessGroup;
using tensor_parallel::part_of;

}  // namespace ringside::column_gather
