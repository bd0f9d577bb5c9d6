#include "autograd/engine/checkpointing.hpp"

#include <doctest/doctest.h>

#include "autograd/engine/engine.hpp"
#include "autograd/nn/layers.hpp"
#include "autograd/ops/ops.hpp"
#include "base/error.hpp"

using namespace ringside;
using namespace ringside::autograd;

namespace {

struct Layer : Module {
  Layer() { register_module("linear", linear); }
  Tensor forward(const Tensor& x) const { return x + silu(linear.forward(x)); }
  Linear linear{64, 64};
};

Tensor input() {
  Tensor x = Tensor::empty({128, 64});
  fill_normal(x, 0, 1, {1, "x"});
  return x;
}

std::vector<float> numbers(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("checkpointing changes no bit of any gradient and runs every hook once") {
  Layer first, second;
  std::vector<std::vector<float>> gradients[2];
  for (const bool checkpointed : {false, true}) {
    int hooks = 0;
    std::vector<int> ids;
    for (const Layer* layer : {&first, &second}) {
      layer->zero_grad();
      for (const Tensor& parameter : layer->parameters())
        ids.push_back(
            parameter.register_post_accumulate_grad_hook([&](const Tensor&) { ++hooks; }));
    }
    const Tensor x = input().set_requires_grad(true);
    const auto through = [&](const Layer& layer, const Tensor& value) {
      return checkpointed
                 ? checkpoint([&layer](const Tensor& v) { return layer.forward(v); }, value)
                 : layer.forward(value);
    };
    backward(mean(through(second, through(first, x))));
    gradients[checkpointed].push_back(numbers(x.grad()));
    std::size_t i = 0;
    for (const Layer* layer : {&first, &second}) {
      for (const Tensor& parameter : layer->parameters()) {
        gradients[checkpointed].push_back(numbers(parameter.grad()));
        parameter.remove_hook(ids[i++]);
      }
    }
    CHECK(hooks == 4);
  }
  CHECK((gradients[0] == gradients[1]));
}

TEST_CASE("a chain of checkpoints saves its inputs and little else") {
  std::vector<std::unique_ptr<Layer>> layers;
  for (int i = 0; i < 16; ++i) layers.push_back(std::make_unique<Layer>());
  std::int64_t peak[2];
  for (const bool checkpointed : {false, true}) {
    for (const auto& layer : layers) layer->zero_grad();
    Tensor x = input().set_requires_grad(true);
    const auto before = memory_use().current;
    reset_peak_memory();
    for (const auto& layer : layers) {
      x = checkpointed
              ? checkpoint([&layer](const Tensor& value) { return layer->forward(value); }, x)
              : layer->forward(x);
    }
    backward(mean(x));
    peak[checkpointed] = memory_use().peak - before;
  }
  const std::int64_t gradients = 16 * (64 * 64 + 64) * 4, of_input = 128 * 64 * 4;
  CHECK(peak[0] >= 16 * 2 * of_input);
  CHECK(peak[1] <= 16 * of_input + gradients + 8 * of_input);
}

TEST_CASE("without history a checkpoint is a plain call of its function") {
  const Layer layer;
  int calls = 0;
  const auto function = [&](const Tensor& x) { return ++calls, layer.forward(x); };
  const Tensor plain = input();
  const Tensor y =
      checkpoint(function, plain);  // x requires no gradient, but the layer does: ordinary history
  CHECK(y.requires_grad());
  backward(mean(y));
  CHECK(calls == 1);
  CHECK(layer.linear.weight.grad().defined());
  const NoGrad no_history;
  CHECK_FALSE(checkpoint(function, input().set_requires_grad(true)).requires_grad());
  CHECK(calls == 2);
}

TEST_CASE("an exception of a checkpointed function leaves backward") {
  int calls = 0;
  const Tensor x = input().set_requires_grad(true);
  const Tensor y = checkpoint(
      [&](const Tensor& value) {
        require(++calls == 1, "not again");
        return value * 2.0;
      },
      x);
  CHECK_THROWS_WITH_AS(backward(mean(y)), "not again", Error);
}
