#include "exercises/judge/tensor_parallel/divided_layer.hpp"

#include "autograd/engine/engine.hpp"
#include "exercises/judge/tensor_parallel/divided_tensors.hpp"

namespace ringside::exercises {

using namespace autograd;

DividedLayer::DividedLayer(int ranks, bool its_column, bool with_bias, std::uint64_t seed)
    : column(its_column),
      in(3 * ranks + 1),
      out(2 * ranks + 1),
      x(numbers({2, 3, in}, seed, "x")),
      weight(numbers({out, in}, seed, "weight")),
      bias(with_bias ? numbers({out}, seed, "bias") : Tensor()),
      dy(numbers({2, 3, out}, seed, "dy")) {}

LayerResults run_layer(
    const DividedLayer& layer, int ranks, int rank,
    const std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>& forward) {
  const bool column = layer.column;
  const auto leaf = [](const Tensor& x) {
    return x.defined() ? x.clone().set_requires_grad(true) : x;
  };
  const Tensor x = leaf(column ? layer.x : part(layer.x, 2, ranks, rank)),
               weight = leaf(part(layer.weight, column ? 0 : 1, ranks, rank)),
               bias = leaf(column ? part(layer.bias, 0, ranks, rank) : layer.bias);
  const Tensor y = forward(x, weight, bias);
  backward(y, column ? part(layer.dy, 2, ranks, rank) : layer.dy);
  return {y.detach(), x.grad(), weight.grad(), bias.defined() ? bias.grad() : Tensor()};
}

}  // namespace ringside::exercises
