// An assignment that stands outside of Ringside's tree: its own data parallelism, on Ringside's
// tensors and collectives. With different data on each rank, all ranks end with the same weights.
#include <cstdio>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "autograd/optim/sgd.hpp"
#include "base/error.hpp"
#include "collectives/process_group.hpp"
#include "ddp/tensor_collectives.hpp"

using namespace ringside;
using namespace ringside::autograd;

int main() try {
  auto group = collectives::ProcessGroup::from_environment();
  const Linear layer(4, 2, true, {1, "layer"});
  const Tensor first = layer.weight.clone();
  SGD optimizer({{layer.named_parameters(), 0.1, 0}});
  for (int step = 0; step < 3; ++step) {
    backward(sum(layer.forward(Tensor::full({8, 4}, group.rank() + 1))));
    for (const auto& [name, parameter] : layer.named_parameters())
      ddp::all_reduce_mean(parameter.grad(), group, name);
    optimizer.step();
    optimizer.zero_grad();
  }
  std::printf("rank %d of %d: the weight fell by %.4f\n", group.rank(), group.size(),
              first.values<float>()[0] - layer.weight.values<float>()[0]);
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
